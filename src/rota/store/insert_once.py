"""Rows for a table of the user's, of which only those are written that are not there yet.

The one statement that cannot be a file: table and columns are the user's. Their names are quoted here,
whatever they are; values are parameters, and given to the driver as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_TEXT = """
insert into {table} ({columns})
values {rows}
on conflict ({conflict}) do nothing
returning {conflict}
"""


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """One statement. Its answer has a row for each that was written, with its conflict columns."""

    table: tuple[str, ...]
    columns: tuple[str, ...]
    conflict: tuple[str, ...]
    rows: Sequence[Sequence[Any]]

    def formatted(self) -> tuple[str, Sequence[Any]]:
        row = f"({', '.join(['%s'] * len(self.columns))})"
        return self._render(", ".join([row] * len(self.rows)), "%%"), self._values()

    def numbered(self) -> tuple[str, Sequence[Any]]:
        width = len(self.columns)
        rows = [
            f"({', '.join(f'${at + 1}' for at in range(first, first + width))})"
            for first in range(0, len(self.rows) * width, width)
        ]
        return self._render(", ".join(rows), "%"), self._values()

    def unique_index(self) -> str:
        """The one it relies on, as a statement that makes it."""
        return f"create unique index on {quoted(*self.table)} ({quoted_list(self.conflict)})"

    def _render(self, rows: str, percent: str) -> str:
        # Where parameters are %s, a % in a name has to be said twice.
        return _TEXT.format(
            table=quoted(*self.table).replace("%", percent),
            columns=quoted_list(self.columns).replace("%", percent),
            conflict=quoted_list(self.conflict).replace("%", percent),
            rows=rows,
        )

    def _values(self) -> list[Any]:
        return [value for row in self.rows for value in row]


def quoted(*names: str) -> str:
    """A name, or one within another, as PostgreSQL takes it literally."""
    from psycopg.sql import Identifier

    return Identifier(*names).as_string(None)


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)
