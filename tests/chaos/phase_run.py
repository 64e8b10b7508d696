"""One phase: a period of faults, a quiet period and the checker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psycopg

from rota.testing.proxy.proxy import Proxy

from . import app, history, mutants
from .cgroups import memory_limited_groups
from .checker import check
from .collect import Collected
from .durable import JOURNEYS, SignalSender
from .evidence import Evidence, Fault, Violation
from .injector import LEAVE_WITHIN, Injector, application_name
from .liveness import reasons, recoveries
from .phases import BEAT, DEAD_AFTER, Phase
from .producer import Producer
from .sampler import Sampler
from .schedule import Plan, Planned, schedule
from .server import Server
from .worker_processes import WorkerProcesses

CAPACITY = 10

SETTINGS: dict[str, Any] = {
    "heartbeat_interval": BEAT,
    "dead_after": DEAD_AFTER,
    "poll_interval": 0.3,
    "concurrency": CAPACITY,
    "prefetch": 10,
    "batch": 20,
    "drain_timeout": 10.0,
    "connections": 5,
    "outage_timeout": 10.0,
    "statement_timeout": 5.0,
}

START_WITHIN = 30.0
MANNED_WITHIN = 15.0
"""Seconds within which a worker that was cut off is active again.

A silent connection is detected later than a broken one.
"""

_numbers = count(1)


@dataclass(slots=True)
class Result:
    phase: str
    seed: str
    counts: Counter[str]
    violations: list[Violation]
    void: list[str]
    """Events that it had to see and did not."""
    first: list[float]
    """Seconds from each kill until the first job of its victim was claimed elsewhere."""
    each: list[float]
    """Seconds until each job of a victim was claimed elsewhere."""
    quiet: float
    directory: Path

    @property
    def passed(self) -> bool:
        return not self.violations and not self.void


class FaultNotPermitted(Exception):
    """Fault that this machine does not permit."""


class PhaseRun:
    """Set-up of a phase, and its result."""

    def __init__(
        self,
        server: Server,
        phase: Phase,
        seed: str,
        directory: Path,
        *,
        mutant: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = server
        self._phase = phase
        self._seed = seed
        self._directory = directory
        self._mutant = mutant
        self._settings = {**SETTINGS, **phase.settings, **(settings or {})}
        self.counts: Counter[str] = Counter()

    async def run(self, seconds: float, *, full: bool = False) -> Result:
        phase = self._phase
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"chaos_{next(_numbers)}"
        dsn = await self._server.database(name)
        if self._mutant is not None:
            await mutants.prepare(self._mutant, dsn)
        self._server.log()
        plan = Plan(seconds, phase.workers, self._settings["dead_after"])
        planned = schedule(phase.faults, self._seed, plan)
        self._keep("schedule", planned)
        with ExitStack() as stack:
            groups: list[str] = []
            if phase.megabytes is not None:
                groups = stack.enter_context(
                    memory_limited_groups(name, phase.workers, phase.megabytes)
                )
                if not groups:
                    raise FaultNotPermitted("no control groups can be made here")
            proxy = stack.enter_context(Proxy(dsn)) if phase.proxied else None
            evidence = await self._play(dsn, proxy, planned, seconds, groups)
        log = self._server.log()
        (self._directory / "server.log").write_text(log)
        evidence.deadlocks = log.count("deadlock detected")
        violations = check(evidence)
        violations += [Violation("I2", text) for text in self._doubles]
        needs = phase.needs(full)
        void = [
            f"{what}: {self.counts[what]} of {least}"
            for what, least in needs.items()
            if self.counts[what] < least
        ]
        found = recoveries(evidence)
        await self._server.drop(name)
        return Result(
            phase.name,
            self._seed,
            self.counts,
            violations,
            void,
            [min(times) for times in found.values()],
            [each for times in found.values() for each in times],
            evidence.quiet_took,
            self._directory,
        )

    async def _play(
        self,
        dsn: str,
        proxy: Proxy | None,
        planned: list[Planned],
        seconds: float,
        groups: list[str],
    ) -> Evidence:
        phase = self._phase

        def address(slot: int) -> str:
            return dsn if proxy is None else proxy.dsn_for(application_name(slot))

        crew = WorkerProcesses(self._directory, address, self._settings, mutant=self._mutant)
        crew.groups.update(enumerate(groups))
        sampler = Sampler(dsn)
        notes = history.History(history.path_of(self._directory, "producer"))
        random = Random(f"{self._seed} producer")
        producer = Producer(dsn, notes, phase.mix, phase.rate, random, lambda: sampler.open)
        postman = SignalSender(dsn, notes, Random(f"{self._seed} postman"))
        injector = Injector(self._server, dsn, crew, proxy, random)
        looking = asyncio.create_task(sampler.run())
        making = asyncio.create_task(producer.run())
        saying = asyncio.create_task(postman.run())
        try:
            await crew.open()
            crew.keep(phase.workers)
            self._watch(crew, sampler, injector, proxy)
            await self._until_manned(dsn, crew, phase.workers, START_WITHIN)
            began = time.monotonic()
            await injector.run(planned)
            await asyncio.sleep(max(began + seconds - time.monotonic(), 0))
            making.cancel()
            with suppress(asyncio.CancelledError):
                await making
            await injector.end()
            quiet_at = time.time()
            quiet_took = await self._until_quiet(dsn, phase.quiet_within)
            await crew.keep_no_more()
            manned_within = MANNED_WITHIN if self._mutant is None else 2.0
            await self._until_manned(dsn, crew, len(crew.pids), manned_within)
            at_the_end = dict(crew.pids)
            if self._mutant is None:
                await crew.drain_all(LEAVE_WITHIN)
        finally:
            making.cancel()
            looking.cancel()
            saying.cancel()
            self._watching.cancel()
            await asyncio.gather(making, looking, saying, self._watching, return_exceptions=True)
            await crew.close()
            notes.close()
        self._doubles = producer.doubles
        found = Collected(dsn)
        lines = history.read(self._directory)
        self._keep("faults", [*crew.faults, *injector.faults, *sampler.starved])
        self._keep("ended", crew.ended)
        if proxy is not None:
            self._keep("cuts", proxy.cuts)
        evidence = Evidence(
            moves=found.moves,
            jobs=found.jobs,
            runs=found.runs,
            outcomes=found.outcomes,
            quarantined=found.quarantined,
            waiting=found.waiting,
            left=found.left,
            effects=found.effects,
            step_effects=found.step_effects,
            kept=found.kept,
            results=found.results,
            signals=found.signals,
            presence=found.presence,
            lines=lines,
            acknowledged=frozenset(producer.acknowledged),
            budgets=app.BUDGETS,
            faults=[*crew.faults, *injector.faults, *sampler.starved, *_starved(lines)],
            ended=crew.ended,
            samples=sampler.samples,
            quiet_at=quiet_at,
            quiet_took=quiet_took,
            quiet_within=phase.quiet_within,
            crew=at_the_end,
            beat=self._settings["heartbeat_interval"],
            dead_after=self._settings["dead_after"],
            capacity=self._settings["concurrency"],
            recovery_target=phase.recovery_target,
        )
        self._count(evidence, injector, proxy, producer)
        return evidence

    def _keep(self, what: str, said: object) -> None:
        (self._directory / f"{what}.json").write_bytes(msgspec.json.encode(said, enc_hook=repr))

    async def _until_quiet(self, dsn: str, within: float) -> float:
        """Wait until no job is open; return the seconds it took."""
        began = time.monotonic()
        while time.monotonic() - began <= within:
            with suppress(psycopg.Error):
                async with await psycopg.AsyncConnection.connect(
                    dsn, autocommit=True
                ) as connection:
                    while time.monotonic() - began <= within:
                        row = await (await connection.execute(_OPEN)).fetchone()
                        if row == (0,):
                            return time.monotonic() - began
                        await asyncio.sleep(0.05)
            await asyncio.sleep(0.1)
        return time.monotonic() - began + 0.001

    async def _until_manned(
        self, dsn: str, crew: WorkerProcesses, many: int, within: float
    ) -> None:
        """Wait until every process is an active worker."""
        until = time.monotonic() + within
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            while time.monotonic() < until:
                rows = await (await connection.execute(_ACTIVE)).fetchall()
                here = crew.pids.values()
                if len(here) >= many and {pid for (pid,) in rows}.issuperset(here):
                    return
                await asyncio.sleep(0.05)

    def _count(
        self, evidence: Evidence, injector: Injector, proxy: Proxy | None, producer: Producer
    ) -> None:
        seen, lease = self.counts, self._settings["dead_after"]
        seen["jobs"] = len(evidence.jobs)
        seen["runs"] = len(evidence.runs)
        seen["acknowledged"] = len(evidence.acknowledged)
        seen["unknown"] = producer.unknown
        seen["kills"] = sum(fault.kind == "kill" for fault in evidence.faults)
        seen["exits"] = max(sum(end.code == -9 for end in evidence.ended) - seen["kills"], 0)
        seen["freezes"] = sum(_exceeds_lease(fault, lease) for fault in evidence.faults)
        seen["reaps"] = sum(each.state == "dead" for each in evidence.presence)
        seen["starved"] = sum(
            reasons(evidence, each) == {"starved"}
            for each in evidence.presence
            if each.state == "dead"
        )
        seen["recovered"] = len(recoveries(evidence))
        lines = Counter(line.what for line in evidence.lines)
        seen["stale"] = lines["refused"] + lines["stale"]
        seen["reborn"] = lines["WorkerReregistered"]
        seen["given_back"] = lines["JobReturned"]
        seen["effects"] = len(evidence.effects)
        seen["quarantined"] = len(evidence.quarantined)
        seen["journeys"] = len(evidence.results)
        seen["steps"] = sum(each.kind == "step" and not each.open for each in evidence.kept)
        seen["slept"] = sum(
            move.place == "sleeping"
            and move.enters
            and move.job in evidence.jobs
            and evidence.jobs[move.job].task in JOURNEYS
            for move in evidence.moves
        )
        seen["signals"] = sum(
            line.what == "signal" and line.said["answer"] == "sent" for line in evidence.lines
        )
        for kind, many in injector.done.items():
            if kind not in ("kill", "freeze", "cut"):
                seen["crashes" if kind == "crash" else f"{kind}s"] = many
        if proxy is not None:
            seen["cuts"] = len(proxy.cuts)
            seen["cuts_committed"] = sum(cut.committed is True for cut in proxy.cuts)
            seen["cuts_uncommitted"] = sum(cut.committed is False for cut in proxy.cuts)

    def _watch(
        self, crew: WorkerProcesses, sampler: Sampler, injector: Injector, proxy: Proxy | None
    ) -> None:
        self._watching = asyncio.create_task(self._report(crew, sampler, injector, proxy))

    async def _report(
        self, crew: WorkerProcesses, sampler: Sampler, injector: Injector, proxy: Proxy | None
    ) -> None:
        from .report import print_progress

        began = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            print_progress(
                self._phase.name,
                time.monotonic() - began,
                {
                    "workers": len(crew.pids),
                    "done": sampler.ended,
                    "open": sampler.open,
                    **injector.done,
                    **({"cut": len(proxy.cuts)} if proxy else {}),
                },
            )


def _starved(lines: list[history.Line]) -> list[Fault]:
    """Return the periods in which processes got no processor time, from their own notes."""
    pids = {line.who: line.said["pid"] for line in lines if line.what == "up"}
    return [
        Fault("starved", line.at - line.said["seconds"], line.at, pids[line.who])
        for line in lines
        if line.what == "starved"
    ]


def _exceeds_lease(fault: Fault, lease: float) -> bool:
    return fault.kind == "freeze" and fault.until - fault.at > lease


_OPEN = """
select (select count(*) from rota.queued) + (select count(*) from rota.sleeping)
     + (select count(*) from rota.claims) + (select count(*) from rota.pending_releases)
     + (select count(*) from rota.waiting
         where not exists (
               select from rota.runs
                where runs.id = waiting.job
                  and exists (select from rota.quarantine where quarantine.job = any(runs.jobs))))
"""

_ACTIVE = "select pid from rota.workers where state = 'active'"
