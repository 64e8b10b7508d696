"""Every SQL statement is in a file, is used, and has a header."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from rota.store.claims import CLAIM_WRITES
from support.failures import assert_none
from support.source_files import (
    PACKAGE,
    modules,
    nodes,
    source_location,
    statement_code,
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


def test_sql_statements_begin_with_header_comment() -> None:
    header = re.compile(r"-- [A-Z].{10,}")

    assert_none(
        each for each in statements() if not header.fullmatch(statement_text(each).splitlines()[0])
    )


def test_sql_statements_qualify_their_tables() -> None:
    """A statement can then be run as it is, and another schema's name can be inserted."""
    tables = (
        r"(?:jobs|queued|sleeping|claims|outcomes|attempts|keys|cancels|waiters|workers|migrations)"
    )
    # Common table expressions may have any other name.
    bare = re.compile(rf"\b(?:from|join|into|update|copy)\s+({tables})\b(?!\s*\.)")

    assert_none(
        f"{each}: {table}" for each in statements() for table in bare.findall(statement_code(each))
    )


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
