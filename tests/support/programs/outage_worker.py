"""App of the worker process: `python app.py DSN FILE`. Each execution is noted in the file."""

from __future__ import annotations

import asyncio
import logging
import sys

from rota import Context, Rota

dsn, notes = sys.argv[1], sys.argv[2]
seen = open(notes, "a", buffering=1)  # noqa: SIM115 - open for the life of the process
app = Rota(dsn, poll_interval=0.2, heartbeat_interval=0.5, dead_after=30, drain_timeout=10)


@app.task
async def note(ctx: Context, n: int, wait: float = 0.0) -> int:
    seen.write(f"{n} {ctx.attempt}\n")
    await asyncio.sleep(wait)
    return n


async def main() -> None:
    async with app:
        await app.work(concurrency=20)


logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
asyncio.run(main())
