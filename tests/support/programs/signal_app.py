"""Task for the worker processes of these tests.

It waits for signals and notes them in a file per process.

    python signal_app.py DSN FILE [CONCURRENCY]

With SIGNAL_MUTANT the processes use a statement that is broken on purpose.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from rota import Context, Rota
from rota.store import query

NAMES = ("go", "on")

END = 90

MUTANTS = {
    # A suspending job does not check whether the signal has arrived meanwhile.
    "blind": ("job/suspend", " or said.at is not null", ""),
    # A suspending job does not lock the signal it waits for.
    "unlocked": (
        "signal/register_waits",
        "do update\n   set jobs = array(select distinct each.job from unnest(known.jobs || excluded.jobs)"
        " as each (job))",
        "do nothing",
    ),
}


def number_of(n: int, name: str, who: int) -> int:
    """Return a payload that identifies the run, the signal and the sender."""
    return 100 * n + 10 * NAMES.index(name) + who


def define(app: Rota, note: Callable[[int, int], None]) -> None:
    @app.task
    async def listen(ctx: Context, n: int) -> list[int]:
        heard = []
        for name in NAMES:
            heard.append(await ctx.wait_signal(name, int))
            note(heard[-1], ctx.attempt)
        note(100 * n + END, ctx.attempt)
        return heard

    @app.task
    async def listen_for(ctx: Context, n: int, seconds: float) -> int:
        heard = await ctx.wait_signal("go", int, timeout=seconds, default=-1)
        note(100 * n + END, ctx.attempt)
        return heard


def mutated(name: str) -> tuple[str, str]:
    """Return the statement that a mutant breaks, and its broken text."""
    statement, there, instead = MUTANTS[name]
    text = query.load(statement, "rota")
    assert there in text, f"{statement} has changed: the mutant must be updated"
    return statement, text.replace(there, instead)


def mutate(name: str) -> None:
    statement, text = mutated(name)
    load = query.load
    query.load = lambda each, schema: text if each == statement else load(each, schema)  # type: ignore[assignment]


async def main(dsn: str, notes: str, concurrency: int) -> None:
    app = Rota(dsn, poll_interval=0.1, drain_timeout=20, connections=4)
    with open(notes, "a", buffering=1) as seen:  # noqa: ASYNC230 - what is noted is noted
        define(app, lambda number, attempt: print(number, attempt, file=seen))
        try:
            await app.work(concurrency=concurrency)
        finally:
            await app.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    if mutant := os.environ.get("SIGNAL_MUTANT"):
        mutate(mutant)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 50))
