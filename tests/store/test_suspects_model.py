"""Any sequence of events of a few jobs and workers: the store's suspects are those of the rules.

The rules are written here as they are documented, not as they are programmed: a job has a number of
crashes, and it is clear, mildly suspect (lost once), or gravely suspect.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from rota.store import claims, timers, workers
from support.lost_workers import declare_dead, orphans, reap, split, suspects
from support.stage import EMPTY, Batch, Stage


@dataclass
class Job:
    crashes: int = 0
    suspect: bool = False
    company: int = 0
    """Losses together with other jobs, while it has no crashes."""
    attempt: int = 1

    @property
    def suspicion(self) -> str | None:
        """A job that was lost once runs like any other."""
        if not self.suspect:
            return None
        return "mild" if max(self.crashes, self.company) == 1 else "grave"

    def be_lost(self, known: str) -> None:
        match known:
            case "doubted":
                self.crashes += 1 if self.crashes else self.company
                self.attempt += 1
            case "blamed":
                # Without crashes so far, the earlier losses are counted as crashes, too.
                self.crashes += 1 if self.crashes else 1 + self.company
                self.attempt += 1
            case _ if not self.crashes:
                self.company = min(self.company + 1, 2)
            case _ if self.suspect and self.crashes == 1:
                self.crashes = 2
        self.suspect = True
        if self.crashes:
            self.company = 0

    def come_back(self) -> None:
        """Record that the code ran and failed without a crash."""
        self.attempt += 1
        self.suspect = False
        self.company = 0


@dataclass
class Simulation:
    stage: Stage
    jobs: dict[int, Job] = field(default_factory=dict)
    held: dict[int, list[Batch]] = field(default_factory=dict)
    alone: dict[int, bool] = field(default_factory=dict)
    """Claims marked as running alone: True at first, False once the job has run alone for long."""

    async def claim(self, worker: int, limit: int) -> None:
        batch = await self.stage.claim(worker, limit)
        assert all(self.jobs[job].suspicion is None for job in batch.jobs)
        if batch.jobs:
            self.held[worker].append(batch)

    async def claim_suspects(self, worker: int, limit: int) -> None:
        waiting = {
            job: self.jobs[job] for job in await self.stage.sql("select job from rota.queued")
        }
        mild = [job for job, each in waiting.items() if each.suspicion == "mild"]
        grave = [job for job, each in waiting.items() if each.suspicion == "grave"]
        taken = await suspects(self.stage, worker, limit)
        expected = min(len(mild), limit) if mild else min(len(grave), 1)
        assert len(taken) == expected
        assert {each.jobs[0] for each in taken} <= set(mild or grave)
        for each in taken:
            job = self.jobs[each.jobs[0]]
            assert (each.members[0].crashes, each.members[0].suspicion) == (
                job.crashes,
                job.suspicion,
            )
        self.held[worker] += taken

    def known(self, worker: int, batch: Batch) -> str:
        """Return the knowledge about the jobs of a batch when their worker dies."""
        if sum(len(each.jobs) for each in self.held[worker]) == 1:
            return "blamed"
        if batch.id in self.alone:
            return "blamed" if self.alone[batch.id] else "doubted"
        return "nothing"

    async def mark(self, worker: int, alone: bool) -> None:
        for batch in self.held[worker]:
            if self.jobs[batch.jobs[0]].suspicion == "grave":
                mark = claims.mark_running(worker, batch.id, batch.jobs[0], exclusive=alone)
                assert await self.stage.run(mark) == [batch.id]
                self.alone[batch.id] = alone

    async def die(self, worker: int) -> None:
        known = [(batch, self.known(worker, batch)) for batch in self.held[worker]]
        assert [each.worker for each in await declare_dead(self.stage, worker)] == [worker]
        await self._take_back(worker)
        del self.held[worker]
        for batch, what in known:
            for job in batch.jobs:
                self.jobs[job].be_lost(what)

    async def leave(self, worker: int) -> None:
        await self.stage.run(workers.mark_stopped(worker))
        await self._take_back(worker)
        del self.held[worker]

    async def _take_back(self, worker: int) -> None:
        found = await orphans(self.stage)
        assert sorted(found) == sorted(batch.id for batch in self.held[worker])
        for claim in found:
            await reap(self.stage, claim)

    async def end(self, batch: Batch, how: str) -> None:
        match how:
            case "complete":
                assert await self.stage.complete(batch) == []
                for job in batch.jobs:
                    del self.jobs[job]
            case "fail":
                await self.stage.retry(batch, delay=0)
                await self.stage.run(timers.wake(100))
                for job in batch.jobs:
                    self.jobs[job].come_back()
            case "give back":
                await self.stage.give_back(batch)

    async def compare(self) -> None:
        found = await self.stage.sql(
            "select job, crashes, suspicion, attempt from rota.queued union all"
            " select member.job, member.crashes, claims.suspicion, member.attempt from rota.claims,"
            " unnest(jobs, crashes, attempts) as member (job, crashes, attempt)"
        )
        assert {job: tuple(history) for job, *history in found} == {
            job: (each.crashes, each.suspicion, each.attempt) for job, each in self.jobs.items()
        }


WHAT = (
    ["claim"] * 3
    + ["suspects"] * 4
    + ["die"] * 4
    + ["leave", "complete", "fail", "give back", "alone"]
)
steps = some.lists(
    some.tuples(some.sampled_from([*WHAT, "split"]), some.integers(0, 2), some.integers(1, 4)),
    min_size=5,
    max_size=40,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    print_blob=True,
)
@given(story=steps)
async def test_suspects_random_events_match_the_rules(
    stage: Stage, story: list[tuple[str, int, int]]
) -> None:
    await stage.sql(EMPTY)
    life = Simulation(stage)
    for job in await stage.start_several(6):
        life.jobs[job] = Job()
    for what, who, number in story:
        while len(life.held) < 3:
            life.held[await stage.worker()] = []
        worker = list(life.held)[who]
        mine = life.held[worker]
        match what:
            case "claim":
                await life.claim(worker, number)
            case "suspects":
                await life.claim_suspects(worker, number)
            case "die":
                await life.die(worker)
            case "leave":
                await life.leave(worker)
            case "alone":
                await life.mark(worker, number < 4)
            case "split":
                for batch in [each for each in mine if len(each.jobs) > 1][:1]:
                    own = await split(stage, batch, batch.jobs.pop())
                    mine.append(own)
            case _ if mine:
                await life.end(mine.pop(number % len(mine)), what)
        await life.compare()
    await stage.check()
