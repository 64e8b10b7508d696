"""App for the worker processes of these tests.

Each process notes its executions in its own file.

    python worker_app.py DSN FILE [CONCURRENCY]
"""

from __future__ import annotations

import asyncio
import logging
import sys

from rota import Context, Rota

dsn, notes = sys.argv[1], sys.argv[2]
concurrency = int(sys.argv[3]) if len(sys.argv) > 3 else 50
app = Rota(dsn, poll_interval=0.1, drain_timeout=20)
seen = open(notes, "a", buffering=1 << 16)  # noqa: SIM115 - open for the life of the process


@app.task
async def note(ctx: Context, n: int) -> int:
    seen.write(f"{n} {ctx.attempt}\n")
    return n


async def main() -> None:
    try:
        await app.work(concurrency=concurrency)
    finally:
        seen.close()
        await app.close()


logging.basicConfig(level=logging.ERROR)
asyncio.run(main())
