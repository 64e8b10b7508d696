"""Flow for the worker processes of these tests.

Each process notes its executions in its own file.

    python flow_app.py DSN FILE [CONCURRENCY]
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable

from rota import Context, Flow, Rota

WIDTH = 8


def define(app: Rota, note: Callable[[int, int], None]) -> Flow:
    """Declare one task, eight successors of it, and one task that depends on all eight."""
    flow = app.flow("fan")

    @flow.task
    async def split(ctx: Context, n: int) -> int:
        note(10 * n, ctx.attempt)
        return n

    def part_of(number: int) -> Callable[..., Awaitable[int]]:
        async def part(ctx: Context, split: int) -> int:
            note(10 * split + 1 + number, ctx.attempt)
            return number

        return part

    parts = [flow.task(part_of(number), name=f"part{number}") for number in range(WIDTH)]

    async def merge(ctx: Context, n: int, part0: int, part7: int) -> int:
        note(10 * n + 9, ctx.attempt)
        return part0 + part7

    flow.task(merge, after=parts)
    return flow


async def main(dsn: str, notes: str, concurrency: int) -> None:
    app = Rota(dsn, poll_interval=0.1, drain_timeout=20)
    with open(notes, "a", buffering=1) as seen:  # noqa: ASYNC230 - what is noted is noted
        define(app, lambda number, attempt: print(number, attempt, file=seen))
        try:
            await app.work(concurrency=concurrency)
        finally:
            await app.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 50))
