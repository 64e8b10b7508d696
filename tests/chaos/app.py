"""Tasks that workers run under chaos: one for each kind of thing a job can do.

Each task notes its beginning and its end. Effects are written to a table of the same database, in the job's
own transaction, and to the process's history, which is outside of the database.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rota import Context, Flow, Retry, Rota, Task
from rota.errors import ClaimLost, Requeue

from . import durable
from .evidence import Budget

Note = Callable[..., None]

OFTEN = 10_000
"""Budget that a chaos run does not use up."""

PATIENT = Retry(max_attempts=OFTEN, delay=0.05, backoff=1.0)
LIMIT = 3
WIDTH = 6
FLAKY = 4

BUDGETS = {
    "noop": Budget(OFTEN, OFTEN),
    "nap": Budget(OFTEN, OFTEN),
    "block": Budget(OFTEN, OFTEN),
    "external": Budget(OFTEN, OFTEN),
    "long": Budget(OFTEN, OFTEN),
    "effect": Budget(OFTEN, OFTEN, effect=True),
    "walk": Budget(OFTEN, OFTEN),
    "flaky": Budget(OFTEN, OFTEN),
    "hopeless": Budget(2, OFTEN),
    "mapper": Budget(OFTEN, OFTEN, limit=LIMIT),
    "journey": Budget(OFTEN, OFTEN),
    "trek": Budget(OFTEN, OFTEN),
    "neighbour": Budget(3, 3),
    "poison": Budget(OFTEN, 3, poison=True),
    "hog": Budget(OFTEN, 3, poison=True),
}


@dataclass(frozen=True, slots=True)
class Tasks:
    noop: Task[[int], int]
    nap: Task[[float], None]
    block: Task[[float], None]
    external: Task[[int], int]
    long: Task[[float], None]
    effect: Task[[float], int]
    walk: Task[[int], int]
    flaky: Task[[int], int]
    hopeless: Task[[], None]
    mapper: Task[[int], int]
    journey: Task[[int, int], list[str]]
    trek: Task[[int], list[str]]
    neighbour: Task[[float], None]
    poison: Task[[], None]
    hog: Task[[], None]
    diamond: Flow
    fan: Flow


def define(app: Rota, note: Note = lambda *_, **__: None, who: str = "") -> Tasks:
    """Register all tasks. An app that only starts jobs passes no `note`."""
    task = app.task(retry=PATIENT, max_crashes=OFTEN)

    @contextmanager
    def noted(ctx: Context, **more: Any) -> Iterator[None]:
        said = {"job": ctx.job_id, "attempt": ctx.attempt}
        note("invoke", task=ctx.task, **said, **more)
        try:
            yield
        except asyncio.CancelledError:
            note("stopped", **said)
            raise
        except ClaimLost:
            note("fail", **said)
            note("stale", **said)
            raise
        except BaseException as error:
            note("fail", error=type(error).__name__, **said)
            raise
        note("ok", **said)

    @task
    async def noop(ctx: Context, n: int) -> int:
        with noted(ctx):
            return n

    @task
    async def nap(ctx: Context, seconds: float) -> None:
        with noted(ctx):
            await asyncio.sleep(seconds)

    @task
    def block(ctx: Context, seconds: float) -> None:
        with noted(ctx):
            time.sleep(seconds)

    @task
    async def external(ctx: Context, n: int) -> int:
        with noted(ctx):
            await asyncio.sleep(random.uniform(0, 0.05))
            note("effect", job=ctx.job_id, attempt=ctx.attempt, claim=await ctx.fence(), n=n)
            return n

    @task
    async def long(ctx: Context, seconds: float) -> None:
        """Run for `seconds`, if need be for longer than a lease, and note regular signs of life."""
        with noted(ctx):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await asyncio.sleep(0.05)
                note("tick", job=ctx.job_id, attempt=ctx.attempt)

    # Only this timeout ends a transaction whose connection goes silent.
    @app.task(retry=PATIENT, max_crashes=OFTEN, timeout=8.0)
    async def effect(ctx: Context, seconds: float) -> int:
        with noted(ctx):
            async with ctx.transaction() as connection:
                await connection.execute(
                    "insert into chaos.effects (job, attempt, who) values (%s, %s, %s)",
                    (ctx.job_id, ctx.attempt, who),
                )
                if seconds:
                    await asyncio.sleep(seconds)
                ctx.complete(ctx.attempt)
            return 0

    @task
    async def walk(ctx: Context, steps: int) -> int:
        """Run in steps with a checkpoint after each, and resume from the last checkpoint."""
        with noted(ctx):
            first = ctx.resumed_from or 0
            for step in range(first, steps):
                note("step", job=ctx.job_id, attempt=ctx.attempt, step=step)
                await asyncio.sleep(0.02)
                await ctx.checkpoint(step + 1)
                if ctx.draining:
                    raise Requeue
            return steps

    @task
    async def flaky(ctx: Context, n: int) -> int:
        with noted(ctx):
            if random.random() < 1 - 1 / FLAKY:
                raise ValueError("not this time")
            return n

    @app.task(retry=Retry(max_attempts=2, delay=0.05), max_crashes=OFTEN)
    async def hopeless(ctx: Context) -> None:
        with noted(ctx):
            raise ValueError("never")

    @task
    async def mapper(ctx: Context, width: int) -> int:
        with noted(ctx, parks=True):
            return sum(await ctx.map([noop.bind(n) for n in range(width)], concurrency=LIMIT))

    @app.task
    async def neighbour(ctx: Context, seconds: float) -> None:
        """Run with the default crash budget beside a task that kills its workers."""
        with noted(ctx):
            await asyncio.sleep(seconds)

    @app.task(retry=PATIENT, max_crashes=3)
    async def poison(ctx: Context) -> None:
        with noted(ctx, deadly=True):
            os.kill(os.getpid(), signal.SIGKILL)

    @app.task(retry=PATIENT, max_crashes=3)
    def hog(ctx: Context) -> None:
        """Allocate memory until the process is killed."""
        with noted(ctx, deadly=True):
            taken = []
            while True:
                taken.append(bytearray(os.urandom(1 << 20)))

    journey, trek = durable.define(app, noted, note, who, PATIENT, OFTEN)
    return Tasks(
        noop,
        nap,
        block,
        external,
        long,
        effect,
        walk,
        flaky,
        hopeless,
        mapper,
        journey,
        trek,
        neighbour,
        poison,
        hog,
        _diamond(app, noted),
        _fan(app, noted),
    )


def _diamond(app: Rota, noted: Any) -> Flow:
    flow = app.flow("diamond")
    part = flow.task(retry=PATIENT, max_crashes=OFTEN)

    @part
    async def top(ctx: Context, n: int) -> int:
        with noted(ctx):
            return n

    @part
    async def left(ctx: Context, top: int) -> int:
        with noted(ctx):
            return top + 1

    @part
    async def right(ctx: Context, top: int) -> int:
        with noted(ctx):
            return top + 2

    @part
    async def bottom(ctx: Context, left: int, right: int) -> int:
        with noted(ctx):
            return left + right

    return flow


def _fan(app: Rota, noted: Any) -> Flow:
    """Declare many tasks that end at about the same time, and one that depends on all of them."""
    flow = app.flow("fan")

    async def one(ctx: Context, n: int) -> int:
        with noted(ctx):
            await asyncio.sleep(0.01)
            return n

    parts = [
        flow.task(one, name=f"part{n}", retry=PATIENT, max_crashes=OFTEN) for n in range(WIDTH)
    ]

    @flow.task(after=parts, retry=PATIENT, max_crashes=OFTEN)
    async def merge(ctx: Context) -> int:
        with noted(ctx):
            return WIDTH

    return flow
