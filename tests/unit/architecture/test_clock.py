"""Only the database's clock decides about jobs: the engine and the store never read the machine's clock.

Durations and the times of polls are measured with a monotonic clock. They decide nothing about jobs.
"""

from __future__ import annotations

import ast

from support.source_files import STATEMENTS, modules, nodes, source_location

FORBIDDEN = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("time", "ctime"),
}


def test_source_of_engine_and_store_never_reads_wall_clock() -> None:
    found = []
    for file in modules("engine", "store", "model", "coord", "app"):
        for node in nodes(file):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr=name):
                    if (owner, name) in FORBIDDEN:
                        found.append(f"{source_location(file, node)}: {owner}.{name}")
                case ast.Attribute(value=ast.Attribute(attr=owner), attr=name):
                    if (owner, name) in FORBIDDEN:
                        found.append(f"{source_location(file, node)}: {owner}.{name}")
                case ast.ImportFrom(module="time", names=names):
                    found += [
                        f"{source_location(file, node)}: from time import {each.name}"
                        for each in names
                        if ("time", each.name) in FORBIDDEN
                    ]
                case _:
                    pass

    assert found == []


def test_sql_statements_use_only_the_settable_clock() -> None:
    """A test cannot set `now()` and its relatives."""
    other = (
        "now()",
        "current_timestamp",
        "clock_timestamp",
        "statement_timestamp",
        "localtimestamp",
    )
    exempt = {
        "migration/create_table.sql",  # runs before rota.clock() exists
        # These read the server itself, perhaps without Rota in it; doctor/clock compares the clocks.
        *(
            "doctor/clock.sql",
            "doctor/snapshot_holders.sql",
            "doctor/tables.sql",
            "doctor/notifications.sql",
        ),
    }
    found = [
        f"{name}: {word}"
        for file in sorted(STATEMENTS.rglob("*.sql"))
        if (name := file.relative_to(STATEMENTS).as_posix()) not in exempt
        for word in other
        if word in file.read_text("utf-8").lower()
    ]

    assert found == []
