"""Source files of the package, for tests that read the source instead of running it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import rota

PACKAGE = Path(rota.__file__).parent
STATEMENTS = PACKAGE / "store" / "sql"


def modules(*under: str) -> list[Path]:
    """Return the Python files of the package, or of the given folders."""
    folders = [PACKAGE / each for each in under] or [PACKAGE]
    return sorted(file for folder in folders for file in folder.rglob("*.py"))


def statements() -> list[str]:
    """Return the names of all SQL statements, as queries use them."""
    return sorted(
        file.relative_to(STATEMENTS).with_suffix("").as_posix()
        for file in STATEMENTS.rglob("*.sql")
    )


def statement_text(statement: str) -> str:
    return (STATEMENTS / f"{statement}.sql").read_text("utf-8")


def statement_code(statement: str) -> str:
    """Return the text of a statement without its comments."""
    return re.sub(r"--.*", "", statement_text(statement)).strip()


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"), str(file))


def nodes(file: Path) -> Iterator[ast.AST]:
    return ast.walk(tree(file))


def source_location(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
