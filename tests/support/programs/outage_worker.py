"""App of the worker process: `python app.py DSN FILE`. Each execution is noted in the file.

A job with a gate runs until a file of that name exists. Its end is noted in FILE.ended.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from rota import Context, Rota

dsn, notes = sys.argv[1], sys.argv[2]
seen = open(notes, "a", buffering=1)  # noqa: SIM115 - open for the life of the process
ended = open(f"{notes}.ended", "a", buffering=1)  # noqa: SIM115
app = Rota(dsn, poll_interval=0.2, heartbeat_interval=0.5, dead_after=30, drain_timeout=10)


@app.task
async def note(ctx: Context, n: int, gate: str = "") -> int:
    seen.write(f"{n} {ctx.attempt}\n")
    if gate:
        while not Path(gate).exists():  # noqa: ASYNC240 - a local file
            await asyncio.sleep(0.02)
        ended.write(f"{n}\n")
    return n


async def main() -> None:
    async with app:
        await app.work(concurrency=20)


logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
asyncio.run(main())
