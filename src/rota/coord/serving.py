"""A term, as the code of a service sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from rota.coord.candidacy import Term
from rota.store.plain import Plain

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


class Serving:
    def __init__(self, term: Term, plain: Plain) -> None:
        self._term = term
        self._plain = plain
        self._loop = asyncio.get_running_loop()

    @property
    def number(self) -> int:
        return self._term.number

    @property
    def held(self) -> bool:
        return self._term.held

    async def assert_held(self, connection: Any) -> None:
        await self._term.assert_held(connection)

    def assertion(self, connection: Any) -> Any:
        return self._term.assertion(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        async with self._plain.transaction() as connection:
            await self._term.assert_held(connection)
            connection.deadline = None  # what the user asks may take its time
            try:
                yield connection
            finally:
                connection.deadline = self._plain.deadline

    @contextmanager
    def blocking_transaction(self) -> Iterator[Connection[Any]]:
        with self._plain.blocking_transaction(self._wait) as connection:
            self._term.assertion(connection)
            connection.deadline = None
            try:
                yield connection
            finally:
                connection.deadline = self._plain.deadline

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
