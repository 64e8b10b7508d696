"""Baseline for bulk enqueuing: rows inserted into a table with one index, without a queue."""

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
        raise NotImplementedError("the baseline has no worker")

    async def close(self) -> None:
        await self._bare.close()


if __name__ == "__main__":
    serve(Plain())
