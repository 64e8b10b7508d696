"""Another instance beside the observed ones: holds locks, leads and takes rate limits for a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from rota import Rota

T = TypeVar("T")


class OtherInstance:
    """Instance in a separate thread: Playwright's sync API keeps an event loop running in this one."""

    def __init__(self, dsn: str) -> None:
        self.app = Rota(dsn)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    def sql(self, text: str, *params: Any) -> list[Any]:
        async def running() -> list[Any]:
            database = (await self.app.open()).database
            async with database.connection() as connection:
                cursor = await connection.execute(text.encode(), params)
                return await cursor.fetchall() if cursor.description is not None else []

        return self.do(running())

    def __enter__(self) -> OtherInstance:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.do(self.app.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()
