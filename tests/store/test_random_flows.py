"""Any graph, with any outcomes in any order, has the result that the rules define."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from psycopg.errors import OperationalError

from rota.store import pg_errors, runs, timers
from support import flows
from support.flows import StartedRun, end, outcomes_with_cause, retry, start
from support.scale import scale
from support.stage import EMPTY, Batch, Connection, Stage

RULES = ["all_succeeded", "none_failed", "all_done", "any_failed"]
ENDS = ["succeeded"] * 6 + ["failed", "skipped", "expired", "again"]


@dataclass
class Scenario:
    """Graph, and the events to happen in it."""

    parents: dict[str, list[str]]
    rules: dict[str, str]
    ends: dict[str, str]
    cancels: list[tuple[int, str]]
    """Pairs of a number and a job: cancel the job, or "run" for all, after this many jobs have ended."""
    seed: int
    ran: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"  {name} ← {', '.join(waits_for)} ({self.rules[name]}): {self.ends[name]}"
            for name, waits_for in self.parents.items()
        ]
        return "\n".join([f"cancels {self.cancels}, seed {self.seed}", *lines])


@some.composite
def scenarios(draw: some.DrawFn, most: int = 60) -> Scenario:
    size = draw(some.integers(1, most))
    chance = draw(some.randoms(use_true_random=False))
    parents: dict[str, list[str]] = {}
    for number in range(size):
        near = chance.random() < 0.5
        low = max(0, number - 5) if near else 0
        many = min(number - low, chance.choice([0, 1, 1, 2, 3, 5]))
        picked = chance.sample(range(low, number), many) if many else []
        parents[f"n{number}"] = [f"n{each}" for each in sorted(picked)]
    calm = chance.random() < 0.2
    return Scenario(
        parents,
        {
            name: chance.choice(RULES) if waits_for else "all_succeeded"
            for name, waits_for in parents.items()
        },
        {name: "succeeded" if calm else chance.choice(ENDS) for name in parents},
        sorted(
            (chance.randrange(size + 1), chance.choice(["run", *parents]))
            for _ in range(chance.choice([0, 0, 1, 2, 4]))
        ),
        chance.randrange(10**6),
    )


class ScenarioRun:
    """Execution of a story by several sessions, with a record of their observations."""

    def __init__(
        self, stage: Stage, story: Scenario, run: StartedRun, sessions: list[Connection]
    ) -> None:
        self.stage, self.story, self.run, self.sessions = stage, story, run, sessions
        self.chance = random.Random(story.seed)
        self.names = {id: name for name, id in run.jobs.items()}
        self.began: Counter[str] = Counter()
        self.wished: set[str] = set()
        self.ended = 0
        self.tried: set[str] = set()

    async def play(self) -> None:
        await asyncio.gather(*(self._session(each) for each in self.sessions))
        await flows.release_all_pending(self.stage)
        await self.stage.check()

    async def _session(self, on: Connection) -> None:
        worker, idle = await self.stage.worker(), 0
        while idle < 3:
            await self._cancel_what_is_due(on)
            batch = await flows.claim(self.stage, worker, self.chance.randint(1, 5), on=on)
            if not batch.jobs:
                await flows.release_all_pending(self.stage, on)
                await self.stage.run(timers.wake(100), on)
                # Another session may be about to commit more queued jobs.
                idle = 0 if await self._is_open() else idle + 1
                await asyncio.sleep(0.001)
                continue
            await self._check_parents(batch)
            await self._end(batch, on)

    async def _is_open(self) -> bool:
        return bool(
            await self.stage.one(
                "select exists (select from rota.queued) or exists (select from rota.claims)"
                " or exists (select from rota.sleeping) or exists (select from rota.pending_releases)"
            )
        )

    async def _check_parents(self, batch: Batch) -> None:
        for job in batch.jobs:
            name = self.names[job]
            self.began[name] += 1
            parents = [self.run[each] for each in self.story.parents[name]]
            ended = await self.stage.one(
                "select count(*) from rota.outcomes where job = any(%s)", parents
            )
            assert ended == len(parents), f"{name} began before all it waits for had ended"

    async def _end(self, batch: Batch, on: Connection) -> None:
        by_end: dict[str, list[int]] = {}
        for job in batch.jobs:
            name = self.names[job]
            end_of_it = self.story.ends[name]
            if end_of_it == "again":
                end_of_it = "succeeded" if name in self.tried else "again"
                self.tried.add(name)
            by_end.setdefault(end_of_it, []).append(job)
        for state, which in by_end.items():
            while True:
                try:
                    async with on.transaction():
                        if state == "again":
                            await self.stage.retry(batch, which, delay=0.0, on=on)
                        else:
                            await end(self.stage, batch, state, which, on=on)
                        if self.chance.random() < 0.3:
                            await asyncio.sleep(0.002)  # keep the transaction open
                    break
                except OperationalError as error:
                    if pg_errors.sqlstate(error) == "40P01" or not pg_errors.is_transient(error):
                        raise
            self.ended += len(which)

    async def _cancel_what_is_due(self, on: Connection) -> None:
        while self.story.cancels and self.story.cancels[0][0] <= self.ended:
            _, name = self.story.cancels.pop(0)
            target = self.run.run if name == "run" else self.run[name]
            while True:
                try:
                    [answer] = await self.stage.run(runs.cancel(target), on)
                    break
                except OperationalError as error:
                    if pg_errors.sqlstate(error) == "40P01" or not pg_errors.is_transient(error):
                        raise
            if answer in ("cancelled", "requested"):
                self.wished.add(name)

    async def compare(self, kept: dict[str, str]) -> dict[str, str]:
        """Compare every outcome with the rules; `kept` ended in an earlier round and did not run now."""
        story, found = self.story, await outcomes_with_cause(self.stage, self.run)
        assert found.keys() == story.parents.keys(), "each has ended"
        for name, waits_for in story.parents.items():
            if name in kept:
                assert (found[name], self.began[name]) == (kept[name], 0), name
                continue
            parents = [found[each] for each in waits_for]
            if found[name] == "cancelled":
                assert self.wished & {name, "run"}, f"nobody wished {name} cancelled"
                continue
            if not flows.should_run(story.rules[name], parents):
                assert (found[name], self.began[name]) == (flows.expected_skip(parents), 0), name
                continue
            planned = story.ends[name]
            expected = "succeeded" if planned == "again" else planned
            assert found[name] == expected, name
            assert self.began[name] == (2 if planned == "again" else 1), name
        whole = await self.stage.one(
            "select state::text from rota.outcomes where job = %s", self.run.run
        )
        assert whole == flows.expected_run_state(list(found.values()), "run" in self.wished)
        left = ("queued", "sleeping", "waiting", "claims", "pending_releases")
        for table in left:
            assert await self.stage.sql(f"select * from rota.{table}") == [], table
        return found


async def run_scenario(stage: Stage, story: Scenario, sessions: list[Connection]) -> None:
    await stage.sql(EMPTY)
    run = await start(stage, story.parents, story.rules)
    kept: dict[str, str] = {}
    for time in range(4):
        telling = ScenarioRun(stage, story, run, sessions)
        await telling.play()
        found = await telling.compare(kept)
        again = flows.jobs_to_retry(story.parents, found)
        answer = await retry(stage, run.run)
        if not again:
            assert answer is None
            break
        assert answer is not None
        await stage.check()
        kept = {name: state for name, state in found.items() if name not in again}
        # More jobs succeed in each round, and all of them in the last.
        for name in again:
            if time >= 1 or telling.chance.random() < 0.6:
                story.ends[name] = "skipped" if story.ends[name] == "skipped" else "succeeded"
    else:
        raise AssertionError("tried again and again, and it never succeeded")
    await fork(stage, story, run, sessions, found)


async def fork(
    stage: Stage,
    story: Scenario,
    run: StartedRun,
    sessions: list[Connection],
    found: dict[str, str],
) -> None:
    chosen = random.Random(story.seed).choice(list(story.parents))
    [(forked, _)] = await stage.run(runs.fork(run.run, f"f.{chosen}"))
    assert forked is not None
    await stage.check()
    copy = await flows.load_run(stage, forked, story.parents)
    again = flows.jobs_to_retry(story.parents, {**found, chosen: "failed"})
    telling = ScenarioRun(stage, story, copy, sessions)
    await telling.play()
    await telling.compare({name: state for name, state in found.items() if name not in again})
    assert await outcomes_with_cause(stage, run) == found, "what was forked stays as it is"


EXAMPLES = scale(12, 120)
"""Number of generated graphs."""


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * EXAMPLES)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
@given(story=scenarios())
async def test_flow_random_graph_ends_as_the_rules_define(stage: Stage, story: Scenario) -> None:
    for connection in stage._opened[2:]:
        await connection.close()
    del stage._opened[2:]
    sessions = [await stage.connect(engine=True) for _ in range(3)]
    described = str(story)
    try:
        async with asyncio.timeout(60):
            await run_scenario(stage, story, sessions)
    except BaseException as error:
        error.add_note(described)
        raise
