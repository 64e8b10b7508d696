"""What every check has at hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from rota.store.database import Database
from rota.store.query import Query

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class CheckContext:
    database: Database
    run_query: Callable[[Query[Any]], Awaitable[list[Any]]]
    pooled: bool
    """A pooler is in between, in transaction mode."""
    now: Callable[[], datetime]
    """What time it is on this machine."""

    @property
    def schema(self) -> str:
        return self.database.schema

    async def fetch(self, query: Query[Row]) -> list[Row]:
        return await self.run_query(query)

    async def fetch_one(self, query: Query[Row]) -> Row:
        [row] = await self.fetch(query)
        return row
