"""Durable functions under chaos: steps, sleeps, signals, branches and restarts.

Each step returns a random value and writes it through the job's transaction, or notes it. The code notes
each value that it gets. The checker compares effects, records and received values.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any
from uuid import uuid4

import psycopg

from rota import Context, Retry, Rota, Task
from rota.errors import DatabaseUnavailable

from .history import History

JOURNEYS = ("journey", "trek")
SIGNALS = ("go", "perhaps")

_INSERT = "insert into chaos.steps (job, step, value, who) values (%s, %s, %s, %s)"
_UNTOLD = """
select jobs.id, wanted.name
  from rota.jobs cross join unnest(%s::text[]) as wanted (name)
 where jobs.task = any(%s)
   and not exists (select from rota.outcomes where outcomes.job = jobs.id)
   and not exists (select from rota.signals
                    where signals.run = jobs.id and signals.name = wanted.name and signals.at is not null)
 order by jobs.id
"""
_SEND = "select rota.signal(%s, %s, to_json(%s::text))"


def define(
    app: Rota, noted: Any, note: Callable[..., None], who: str, retry: Retry, crashes: int
) -> tuple[Task[[int, int], list[str]], Task[[int], list[str]]]:
    task = app.task(retry=retry, max_crashes=crashes)

    def does(ctx: Context, step: str) -> str:
        value = uuid4().hex
        note("did", job=ctx.job_id, attempt=ctx.attempt, step=step, value=value)
        return value

    async def writes(ctx: Context, step: str) -> str:
        async with ctx.transaction() as connection:
            value = does(ctx, step)
            await connection.execute(_INSERT, (ctx.job_id, step, value, who))
        await asyncio.sleep(random.choice((0.0, 0.0, 0.05)))
        return value

    def writes_blocking(ctx: Context, step: str) -> str:
        with ctx.sync.transaction() as connection:
            value = does(ctx, step)
            connection.execute(_INSERT, (ctx.job_id, step, value, who))
        return value

    async def stumbles(ctx: Context, step: str) -> str:
        async with ctx.transaction() as connection:
            value = does(ctx, step)
            await connection.execute(_INSERT, (ctx.job_id, step, value, who))
        if random.random() < 0.5:
            raise ValueError("not this time")
        return value

    def given(ctx: Context, step: str, value: str) -> str:
        note("given", job=ctx.job_id, attempt=ctx.attempt, step=step, value=value)
        return value

    @task
    async def journey(ctx: Context, n: int, rounds: int) -> list[str]:
        with noted(ctx, parks=True):
            token = str(ctx.uuid())

            async def step(name: str, fn: Any) -> str:
                name = f"{name} {rounds}"
                return given(ctx, name, await ctx.step(name, fn, ctx, name))

            seen = [await step("write", writes), await step("do", does)]
            ctx.progress(1, 3)
            await ctx.sleep((0.0, 0.3, 1.3)[n % 3])
            seen += await asyncio.gather(step("left", writes), step("right", writes))
            seen.append(given(ctx, f"go {rounds}", await ctx.wait_signal("go", str)))
            patient = ctx.options(retry=Retry(max_attempts=50, delay=0.05, backoff=1.0))
            name = f"stumble {rounds}"
            seen.append(given(ctx, name, await patient.step(name, stumbles, ctx, name)))
            perhaps = await ctx.wait_signal("perhaps", str, timeout=(0.2, 1.5)[n % 2], default="")
            seen += [given(ctx, f"perhaps {rounds}", perhaps), await step("last", writes)]
            if rounds > 1:
                await ctx.restart(n=n, rounds=rounds - 1)
            return [token, *seen]

    @task
    def trek(ctx: Context, n: int) -> list[str]:
        with noted(ctx, parks=True):
            token = str(ctx.uuid())
            seen = []
            for name, fn in (("first", writes_blocking), ("do", does), ("second", writes_blocking)):
                seen.append(given(ctx, name, ctx.sync.step(name, fn, ctx, name)))
                ctx.sync.sleep((0.0, 1.2)[n % 2])
            seen.append(given(ctx, "go", ctx.sync.wait_signal("go", str)))
            name = "last"
            seen.append(given(ctx, name, ctx.sync.step(name, writes_blocking, ctx, name)))
            return [token, *seen]

    return journey, trek


class SignalSender:
    """Sender of the signals that journeys wait for; some are sent more than once."""

    def __init__(self, dsn: str, history: History, random: Random) -> None:
        self._dsn = dsn
        self._note = history.note
        self._random = random
        self._app = Rota(dsn, outage_timeout=2.0)
        self.sent = 0

    async def run(self) -> None:
        """Send signals until cancelled. Reconnect while the server is unreachable."""
        try:
            while True:
                with suppress(psycopg.Error):
                    async with await psycopg.AsyncConnection.connect(
                        self._dsn, autocommit=True
                    ) as connection:
                        while True:
                            await self._round(connection)
                            await asyncio.sleep(self._random.uniform(0.05, 0.3))
                await asyncio.sleep(0.1)
        finally:
            await self._app.close()

    async def _round(self, connection: psycopg.AsyncConnection[Any]) -> None:
        asked = await connection.execute(_UNTOLD, (list(SIGNALS), list(JOURNEYS)))
        for job, name in await asked.fetchall():
            if self._random.random() < (0.3 if name == "go" else 0.05):
                for _ in range(self._random.choice((1, 1, 2))):
                    await self._send(connection, job, name)

    async def _send(self, connection: psycopg.AsyncConnection[Any], job: int, name: str) -> None:
        payload = uuid4().hex
        said = {"job": job, "name": name, "payload": payload}
        answer = "unknown"
        try:
            if self._random.random() < 0.5:
                answer = "sent" if await self._app.signal(job, name, payload) else "not sent"
            else:
                row = await (await connection.execute(_SEND, (job, name, payload))).fetchone()
                answer = str(row[0]) if row else "none"
        except (DatabaseUnavailable, OSError):
            pass
        finally:
            self._note("signal", answer=answer, **said)
            self.sent += answer == "sent"
