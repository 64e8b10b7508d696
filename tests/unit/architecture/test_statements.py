"""Every SQL statement is in a file, is used, has a header, and can be prepared by PostgreSQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import Connection

from rota.store.claims import CLAIM_WRITES
from rota.store.query import positional
from rota.testing.server import DatabaseServer
from support.source_files import (
    PACKAGE,
    modules,
    nodes,
    source_location,
    statement_text,
    statements,
)

NAME = re.compile(r"[a-z_]+/[a-z_]+")
SQL = re.compile(
    r"\s*(select|insert\s+into|update\s+\S+\s+set|delete\s+from|with\s+\w+\s+as|truncate|listen|notify"
    r"|(create|alter|drop)\s+(or\s+replace\s+)?(table|function|schema|database|index|role|sequence)"
    r"|copy\s+\S+\s+(from|to))\b",
    re.IGNORECASE,
)
# Remedies for a server: operators read them and run them. Rota does not.
REMEDIES = ("engine/diagnosis/doctor_checks.py", "store/read/doctor.py")
PREPARED = ("select", "insert", "update", "delete", "with")


def statement_code(statement: str) -> str:
    return re.sub(r"--.*", "", statement_text(statement)).strip()


def remedies_in(file: Path) -> set[ast.AST]:
    """Return the parts of values that are assigned to `fix`, or appended to a list of remedies."""
    values = [
        node.value
        for node in nodes(file)
        if isinstance(node, ast.Assign) and any(ast.unparse(each) == "fix" for each in node.targets)
    ] + [
        argument
        for node in nodes(file)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "in_schema"
        for argument in node.args
    ]
    return {each for value in values for each in ast.walk(value)}


def used_statements() -> set[str]:
    """Return the strings in the package that are in the form of a statement's name."""
    return {
        node.value
        for file in modules()
        for node in nodes(file)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAME.fullmatch(node.value)
        and (PACKAGE / "store" / "sql" / node.value.split("/")[0]).is_dir()
    }


def test_sql_files_equal_the_statements_used() -> None:
    assert used_statements() == set(statements())


@pytest.mark.parametrize("statement", statements())
def test_sql_statement_begins_with_header_comment(statement: str) -> None:
    first = statement_text(statement).splitlines()[0]

    assert re.fullmatch(r"-- [A-Z].{10,}", first), f"{statement} has no header"


@pytest.mark.parametrize("statement", statements())
def test_sql_statement_qualifies_its_tables(statement: str) -> None:
    """A statement can then be run as it is, and another schema's name can be inserted."""
    code = statement_code(statement)
    tables = (
        r"(?:jobs|queued|sleeping|claims|outcomes|attempts|keys|cancels|waiters|workers|migrations)"
    )

    bare = re.findall(rf"\b(?:from|join|into|update|copy)\s+({tables})\b(?!\s*\.)", code)

    # Common table expressions may have any other name.
    assert bare == []


@pytest.fixture(scope="module")
def connection(rota_server: DatabaseServer) -> Iterator[Connection[tuple[object, ...]]]:
    with rota_server.database() as dsn, psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


@pytest.mark.parametrize(
    "statement",
    # Definitions and COPY cannot be prepared; tests/migrations and tests/store run them.
    [each for each in statements() if statement_code(each).startswith(PREPARED)],
)
def test_sql_statement_can_be_prepared(
    connection: Connection[tuple[object, ...]], statement: str
) -> None:
    text, _ = positional(statement, "rota")

    answer = connection.pgconn.prepare(b"guarded", text.encode())

    assert answer.status == psycopg.pq.ExecStatus.COMMAND_OK, answer.error_message.decode()
    connection.execute("deallocate guarded")


def test_source_builds_no_sql_from_strings() -> None:
    """SQL is not built with f-strings, %, + or format: `psycopg.sql` quotes correctly."""
    found = []
    for file in modules():
        remedies = remedies_in(file) if file.relative_to(PACKAGE).as_posix() in REMEDIES else set()
        for node in nodes(file):
            if node in remedies:
                continue
            text = ""
            if isinstance(node, ast.JoinedStr) and len(node.values) > 1:
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "x"
                    for part in node.values
                )
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.Add):
                sides = (node.left, node.right)
                text = " ".join(
                    each.value
                    for each in sides
                    if isinstance(each, ast.Constant) and isinstance(each.value, str)
                )
            if SQL.match(text) or re.search(r"\b(from|join|into|update)\s+rota\.", text):
                found.append(f"{source_location(file, node)}: {text[:60]!r}")

    assert found == []


def test_sql_statements_that_write_claims_are_listed() -> None:
    writes = re.compile(
        r"\b(insert\s+into|update|delete\s+from|truncate|merge\s+into)\s+rota\.claims\b"
    )
    found = {statement for statement in statements() if writes.search(statement_code(statement))}
    for file in (PACKAGE / "store" / "migrations").glob("*.sql"):
        code = re.sub(r"--.*", "", file.read_text("utf-8"))
        for function in re.split(r"\bcreate\s+(?:or\s+replace\s+)?function\s+", code)[1:]:
            if writes.search(function):
                found.add(function.partition("(")[0])
    for file in modules():
        assert not writes.search(file.read_text("utf-8")), (
            f"{file} writes claims outside of store/sql"
        )

    assert found == set(CLAIM_WRITES)
