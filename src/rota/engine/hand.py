"""A connection of the exchange's own, opened when it is needed, given up when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.store.database import Database, exchange
from rota.store.query import Query

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class Hand:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: AsyncConnection[Any] | None = None

    async def send(self, segments: list[list[Query[Any]]]) -> list[list[list[Any]]]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(engine=True)
        return await exchange(self._connection, segments, self._database.schema)

    async def let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
