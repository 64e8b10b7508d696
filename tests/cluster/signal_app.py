"""The task that worker processes of these tests run: it waits, and notes all it hears in a file of its own.

python signal_app.py DSN FILE [CONCURRENCY]

With SIGNAL_MUTANT the processes run a statement that was broken on purpose.
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
    # Who lies down does not look whether it was said meanwhile.
    "blind": ("job/suspend", " or said.at is not null", ""),
    # Who lies down does not lock what it waits for.
    "unlocked": (
        "signal/register_waits",
        "do update\n   set jobs = array(select distinct each.job from unnest(known.jobs || excluded.jobs)"
        " as each (job))",
        "do nothing",
    ),
}


def number_of(n: int, name: str, who: int) -> int:
    """What one of those who send says to a run: it can be told where it comes from, and for whom it is."""
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
    """The statement that a mutant breaks, and its text then."""
    statement, there, instead = MUTANTS[name]
    text = query.load(statement, "rota")
    assert there in text, f"{statement} has changed: say anew what the mutant is"
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
