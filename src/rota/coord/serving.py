"""A term, as the code of a service sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from rota.coord.candidacy import Term
from rota.store.plain import RawConnections

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


class ServiceTerm:
    def __init__(self, term: Term, raw_connections: RawConnections) -> None:
        self._term = term
        self._raw_connections = raw_connections
        self._loop = asyncio.get_running_loop()

    @property
    def number(self) -> int:
        return self._term.number

    @property
    def held(self) -> bool:
        return self._term.held

    async def assert_held(self, connection: Any) -> None:
        await self._term.assert_held(connection)

    def run_assertion(self, connection: Any) -> Any:
        return self._term.run_assertion(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._raw_connections.transaction() as connection:
            await self._term.assert_held(connection)
            connection.answer_timeout = None  # what the user asks may take its time
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    @contextmanager
    def sync_transaction(self) -> Iterator[Connection[Any]]:
        with self._raw_connections.sync_transaction(self._run_in_loop) as connection:
            self._term.run_assertion(connection)
            connection.answer_timeout = None
            try:
                yield connection
            finally:
                connection.answer_timeout = self._raw_connections.answer_timeout

    def _run_in_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
