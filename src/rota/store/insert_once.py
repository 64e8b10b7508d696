"""INSERT into a user's table that skips rows which already exist.

This statement cannot be a file, because table and columns belong to the user. Their names are always
quoted. Values are parameters and are passed to the driver unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

_TEXT = """
insert into {table} ({columns})
values {rows}
on conflict ({conflict}) do nothing
returning {conflict}
"""


class InsertStatement(msgspec.Struct, frozen=True):
    """INSERT statement. It returns the conflict columns of each row that was written."""

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
        """Return the statement that creates the unique index which the INSERT requires."""
        return f"create unique index on {quoted(*self.table)} ({quoted_list(self.conflict)})"

    def _render(self, rows: str, percent: str) -> str:
        # With %s parameters, a % in a name must be doubled.
        return _TEXT.format(
            table=quoted(*self.table).replace("%", percent),
            columns=quoted_list(self.columns).replace("%", percent),
            conflict=quoted_list(self.conflict).replace("%", percent),
            rows=rows,
        )

    def _values(self) -> list[Any]:
        return [value for row in self.rows for value in row]


def quoted(*names: str) -> str:
    """Return a name, qualified if there are several parts, quoted for PostgreSQL."""
    from psycopg.sql import Identifier

    return Identifier(*names).as_string(None)


def quoted_list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)
