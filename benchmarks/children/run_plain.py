"""No queue: rows into a table with one index, as a yardstick of bulk enqueuing."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from bare import Bare
from serve import URL, serve
from tally import Tally


class Plain:
    tally: Tally

    async def open(self, dsn: str) -> None:
        self._bare = await Bare.open(dsn)

    async def migrate(self) -> None:
        """Do nothing: `open` created the table."""

    async def enqueue(self, numbers: range) -> None:
        await self._bare.insert_many(numbers, URL)

    async def start(self, n: int) -> None:
        await self._bare.insert(n, URL)

    def working(self, concurrency: int, haste: bool) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError("rows in a table are not worked on")

    async def close(self) -> None:
        await self._bare.close()


if __name__ == "__main__":
    serve(Plain())
