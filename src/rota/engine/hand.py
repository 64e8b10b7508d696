"""A connection of the exchange's own, opened when it is needed, given up when it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.store.database import Database, pipeline
from rota.store.query import Query

if TYPE_CHECKING:
    from psycopg import AsyncConnection


class ReconnectingConnection:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: AsyncConnection[Any] | None = None

    async def send(self, transactions: list[list[Query[Any]]]) -> list[list[list[Any]]]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(engine=True)
        return await pipeline(self._connection, transactions, self._database.schema)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
