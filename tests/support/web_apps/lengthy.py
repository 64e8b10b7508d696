"""Long jobs that use, at their very end, a resource that the program owns beside Rota."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rota import Context, Retry, Rota

app = Rota()


class Pool:
    """Resource of the application, closed when the program ends."""

    def __init__(self) -> None:
        self._open = True

    def use(self) -> None:
        if not self._open:
            raise RuntimeError("pool closed")

    def close(self) -> None:
        self._open = False


pool = Pool()


@app.task(retry=Retry(max_attempts=1))
async def lengthy(ctx: Context, seconds: float, notes: str) -> str:
    """Use the pool and the database only after `seconds`, when the process is already draining."""
    _note(notes, f"began {ctx.attempt}")
    await asyncio.sleep(seconds)
    pool.use()
    await ctx.step("weigh", _weigh)
    await ctx.checkpoint(1)
    async with ctx.transaction() as connection:
        await connection.execute("insert into done (job) values (%s)", (ctx.job_id,))
    await after.start(notes=notes)
    _note(notes, "ended while draining" if ctx.draining else "ended")
    return "done"


async def _weigh() -> int:
    return 1


@app.task(queue="after")
async def after(notes: str) -> None:
    _note(notes, "after")


@app.task(retry=Retry(max_attempts=1))
async def endless(ctx: Context, notes: str) -> str:
    """Run until the file `notes`.end exists, in whichever process claims the job."""
    _note(notes, f"began {ctx.attempt}")
    while not _may_end(notes):
        await asyncio.sleep(0.01)
    _note(notes, "ended")
    return "done"


@app.task(retry=Retry(max_attempts=1))
def stubborn(ctx: Context, notes: str) -> str:
    """Run as `endless`, in a thread, which cannot be cancelled."""
    _note(notes, f"began {ctx.attempt}")
    while not _may_end(notes):
        time.sleep(0.01)
    _note(notes, "ended")
    return "done"


def _may_end(notes: str) -> bool:
    return Path(f"{notes}.end").exists()


def _note(notes: str, line: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{line}\n")
