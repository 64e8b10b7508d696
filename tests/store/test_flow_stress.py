"""Ends, cancels and retries of flows at once: no deadlock, no stranded job, a consistent state."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from psycopg.errors import OperationalError

from rota.engine.worker.outcomes import (
    FinishedAttempt,
    OutcomeBatch,
    transactions_for,
    waiter_ids,
)
from rota.model.outcome import FinalOutcome, Outcome, Retried, Returned, Succeeded
from rota.store import listeners, pg_errors, runs, timers
from support import flows
from support.flows import StartedRun, cancel, start
from support.stage import Connection, Stage

SHAPES: list[tuple[dict[str, list[str]], dict[str, str]]] = [
    ({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, {}),
    ({"a": [], "b": [], "c": [], "d": ["a", "b", "c"], "e": ["a", "c"]}, {"e": "any_failed"}),
    ({"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"]}, {"d": "all_done", "b": "none_failed"}),
]


class StressLoad:
    """Sessions that start, run, cancel and retry flows at random for a while."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.laid: list[StartedRun] = []
        self.early: list[int] = []  # jobs that began before a predecessor had ended
        self.moves = 0

    async def session(self, on: Connection, until: float) -> None:
        worker = await self.stage.worker()
        while time.monotonic() < until:
            try:
                await self._move(worker, on)
                self.moves += 1
            except OperationalError as error:
                if pg_errors.sqlstate(error) == "40P01" or not pg_errors.is_transient(error):
                    raise

    async def _move(self, worker: int, on: Connection) -> None:
        match self.chance.choices(["work", "start", "cancel", "retry", "settle"], [8, 2, 2, 2, 1])[
            0
        ]:
            case "work":
                await self.work(worker, on)
            case "start":
                graph, rules = self.chance.choice(SHAPES)
                self.laid.append(await start(self.stage, graph, rules, on=on))
            case "cancel" if self.laid:
                run = self.chance.choice(self.laid[-20:])
                await cancel(self.stage, self.chance.choice([run.run, *run.jobs.values()]), on)
            case "retry" if self.laid:
                await self.stage.run(runs.retry(self.chance.choice(self.laid[-20:]).run), on)
            case "settle":
                await self.stage.run(runs.release_pending(10), on)
                await self.stage.run(timers.wake(100), on)

    async def work(self, worker: int, on: Connection, *, kindly: bool = False) -> int:
        """Claim a few jobs and finish them in several ways, as the engine records it."""
        stage, chance = self.stage, self.chance
        batch = await flows.claim(stage, worker, chance.randint(1, 6), on=on)
        if not batch.jobs:
            return 0
        self.early += await stage.sql(
            "select parent.id from rota.jobs as parent where parent.successors && %s::bigint[]"
            " and parent.run is not null"
            " and not exists (select from rota.outcomes where outcomes.job = parent.id)",
            batch.jobs,
            on=on,
        )
        done, failed = Succeeded(None), FinalOutcome("failed", "{}")
        possible: list[Outcome] = [done, done, failed, Retried(0.0, "{}"), Returned()]
        ended = OutcomeBatch(
            [
                FinishedAttempt(job, done if kindly else chance.choice(possible), 0.1)
                for job in batch.members
            ]
        )
        segments = transactions_for(worker, ended)
        while segments:
            try:
                await stage.together(*segments[0], on=on)
                del segments[0]
            except OperationalError as error:
                if pg_errors.sqlstate(error) == "40P01" or not pg_errors.is_transient(error):
                    raise
        await stage.run(listeners.notify_waiters(waiter_ids(ended)), on)
        return len(batch.jobs)

    async def calm_down(self) -> None:
        stage, worker = self.stage, await self.stage.worker()
        while True:
            await stage.run(timers.wake(1000))
            await flows.release_all_pending(stage)
            worked = await self.work(worker, stage.engine, kindly=True)
            if not worked and await stage.one("select count(*) from rota.sleeping") == 0:
                return


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_flow_stress_ends_consistent_without_deadlock(own_stage: Stage, seed: int) -> None:
    stage = own_stage
    storm = StressLoad(stage, seed)
    sessions = [await stage.connect(engine=True) for _ in range(8)]

    for _ in range(10):
        until = time.monotonic() + 3
        await asyncio.gather(*(storm.session(each, until) for each in sessions))
        if storm.moves > 200:
            break
    await storm.calm_down()

    assert (
        await stage.one("select deadlocks from pg_stat_database where datname = current_database()")
        == 0
    )
    assert storm.moves > 200
    assert storm.early == []
    await stage.check()
    left = ("queued", "sleeping", "waiting", "claims", "pending_releases")
    assert {table: await stage.one(f"select count(*) from rota.{table}") for table in left} == (
        dict.fromkeys(left, 0)
    )
    assert (
        await stage.sql(
            "select id from rota.runs where not exists (select from rota.outcomes where job = id)"
        )
        == []
    )
