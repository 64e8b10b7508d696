"""Candidates for one leadership, in processes, and faults that disrupt the present leader."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from rota import Rota
from rota.coord.candidate import TRUSTED_SHARE
from rota.coord.lease import LeaseClock
from rota.localpg import LocalPostgres
from rota.store import advisory_locks
from rota.testing.proxy.proxy import Proxy
from support.leader_checks import (
    EARLY,
    Disruption,
    Effect,
    Notes,
    find_leader_faults,
)
from support.pgbouncer import run_pgbouncer
from support.places import PROGRAMS, TESTS
from support.programs.leader_app import TABLE
from support.replication import memory_directory

APP = PROGRAMS / "leader_app.py"
PATH = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
NAME = "crown"
ACTS_NOW = 0.1
"""Seconds since its last act for which a process counts as acting."""

LOOK_EVERY = 0.01
WITHIN = 30.0


@dataclass(slots=True)
class CandidateProcess:
    slot: int
    instance: str
    process: subprocess.Popen[bytes]
    notes: Notes


class LeaderCandidates:
    """Candidates of one leader name.

    `name` has a letter for each process: d for direct, p through a pooler.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        server: LocalPostgres,
        ways: list[Proxy],
        *,
        lease: float,
        mutant: str = "",
    ) -> None:
        self._name = name
        self.pooled = "d" not in name
        self.server = server
        self.lease = lease
        self._directory = directory
        self._ways = ways
        self._mutant = mutant
        self._subjects: dict[int, CandidateProcess] = {}
        self._numbers = 0
        self.notes: list[Notes] = []
        self.disruptions: list[Disruption] = []

    # Processes

    def start(self, slot: int) -> CandidateProcess:
        self._numbers += 1
        instance = f"{self._name}-{slot}-{self._numbers}"
        notes = Notes(self._directory / f"notes-{instance}", instance)
        order = {
            "dsn": self._ways[slot].dsn_for(instance),
            "instance": instance,
            "name": NAME,
            "lease": self.lease,
            "notes": str(notes.path),
            "mutant": self._mutant,
        }
        with (self._directory / f"said-{instance}").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, str(APP), json.dumps(order)],
                stderr=said,
                env={**os.environ, "PYTHONPATH": PATH},
            )
        subject = CandidateProcess(slot, instance, process, notes)
        self._subjects[slot] = subject
        self.notes.append(notes)
        return subject

    async def open(self) -> None:
        for slot in range(len(self._ways)):
            self.start(slot)
        await self._until(lambda: all(each.notes.up for each in self._subjects.values()))

    def close(self) -> None:
        for each in self._subjects.values():
            each.process.kill()
        for each in self._subjects.values():
            each.process.wait()
        self._read()

    def _read(self) -> None:
        for notes in self.notes:
            notes.read()

    async def _until(self, true: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WITHIN):
            while True:
                self._read()
                if answer := true():
                    return answer
                await asyncio.sleep(LOOK_EVERY)

    def _acting(self) -> CandidateProcess | None:
        """Return the process that acts now, if there is exactly one."""
        now = LeaseClock().now()
        acting = [each for each in self._subjects.values() if now - each.notes.last[1] < ACTS_NOW]
        return acting[0] if len(acting) == 1 else None

    @property
    def term(self) -> int:
        return max(each.last[0] for each in self.notes)

    async def reigning(self) -> CandidateProcess:
        subject: CandidateProcess = await self._until(self._acting)
        return subject

    # Faults

    async def disrupt(self, kind: str) -> Disruption:
        await self.reigning()
        await asyncio.sleep(random.uniform(0.05, 0.4))
        subject = await self.reigning()
        term = self.term
        at = LeaseClock().now()
        change, mend = getattr(self, "_" + kind.replace(" ", "_"))(subject)
        await change()
        if kind in self.harmless:
            await asyncio.sleep(self.lease)
            await self.reigning()
        else:
            await self._until(lambda: self.term > term)
        found = [note.reigns[each] for note in self.notes for each in note.reigns if each > term]
        over = min((reign.first for reign in found), default=None)
        await asyncio.sleep(random.uniform(0.0, 0.3))
        await mend()
        taken = None if over is None else over - at
        self.disruptions.append(Disruption(kind, at, subject.instance, term, taken))
        return self.disruptions[-1]

    @property
    def harmless(self) -> set[str]:
        """Return the faults that cost no term where the leadership does not depend on a session."""
        return {"doze", "terminate", "cut", "half open"} if self.pooled else {"doze"}

    def _kill(self, subject: CandidateProcess) -> Change:
        async def change() -> None:
            subject.process.kill()
            subject.process.wait()

        async def mend() -> None:
            self.start(subject.slot)

        return change, mend

    def _freeze(self, subject: CandidateProcess) -> Change:
        return (
            lambda: _send(subject, signal.SIGSTOP),
            lambda: _send(subject, signal.SIGCONT),
        )

    def _doze(self, subject: CandidateProcess) -> Change:
        """Freeze the process for a fifth of its lease."""

        async def change() -> None:
            await _send(subject, signal.SIGSTOP)
            await asyncio.sleep(self.lease * 0.2)
            await _send(subject, signal.SIGCONT)

        return change, _no_repair

    def _terminate(self, subject: CandidateProcess) -> Change:
        async def change() -> None:
            await self._ask(ENDED if self.pooled else UNSEATED)

        return change, _no_repair

    def _cut(self, subject: CandidateProcess) -> Change:
        async def change() -> None:
            await asyncio.to_thread(self._ways[subject.slot].reset, application=subject.instance)

        return change, _no_repair

    def _half_open(self, subject: CandidateProcess) -> Change:
        """Close the server's side only: the server notices the closed connection, the process does not."""

        async def change() -> None:
            way = self._ways[subject.slot]
            await asyncio.to_thread(way.half_open, "server", application=subject.instance)

        return change, _no_repair

    def _black_hole(self, subject: CandidateProcess) -> Change:
        way = self._ways[subject.slot]

        async def change() -> None:
            await asyncio.to_thread(way.drop, application=subject.instance)

        async def mend() -> None:
            await asyncio.to_thread(way.heal)

        return change, mend

    def _stranded(self, subject: CandidateProcess) -> Change:
        """Freeze the process and cut it off, so that after waking it has only its own clock."""
        way = self._ways[subject.slot]

        async def change() -> None:
            await asyncio.to_thread(way.drop, application=subject.instance)
            await _send(subject, signal.SIGSTOP)

        async def mend() -> None:
            await _send(subject, signal.SIGCONT)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(way.heal)

        return change, mend

    def _restart(self, subject: CandidateProcess) -> Change:
        async def change() -> None:
            await asyncio.to_thread(self.server.restart)

        return change, _no_repair

    def _crash(self, subject: CandidateProcess) -> Change:
        async def change() -> None:
            await asyncio.to_thread(self.server.restart, immediately=True)

        return change, _no_repair

    # Database

    async def _ask(self, text: str) -> list[Any]:
        dsn = self.server.dsn
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            return await (await connection.execute(text.encode())).fetchall()

    async def effects(self) -> list[Effect]:
        rows = await self._ask("select instance, term, began, ended from effects")
        return [Effect(*row) for row in rows]


Change = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]

UNSEATED = (
    "select pg_terminate_backend(pid) from pg_locks"
    f" where locktype = 'advisory' and classid::bigint = {advisory_locks.LEADER} and granted"
)
ENDED = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


async def _no_repair() -> None: ...


async def _send(subject: CandidateProcess, number: int) -> None:
    subject.process.send_signal(number)


@asynccontextmanager
async def run_candidates(
    directory: Path, ways: str, *, lease: float, mutant: str = ""
) -> AsyncIterator[LeaderCandidates]:
    async with AsyncExitStack() as opened:
        place = opened.enter_context(memory_directory())
        server = LocalPostgres(place / "pg", profile="test")
        dsn = await asyncio.to_thread(server.start)
        opened.push_async_callback(asyncio.to_thread, server.stop)
        async with Rota(dsn) as app:
            await app.migrate()
            async with (await app.open()).database.connection() as connection:
                await connection.execute(TABLE.encode())
        doors = {"d": opened.enter_context(Proxy(dsn))}
        if "p" in ways:
            pooled = await asyncio.to_thread(opened.enter_context, run_pgbouncer(dsn, shared=10))
            doors["p"] = opened.enter_context(Proxy(pooled.before(dsn)))
        made = LeaderCandidates(
            ways,
            directory,
            server,
            [doors[way] for way in ways],
            lease=lease,
            mutant=mutant,
        )
        opened.callback(made.close)
        await made.open()
        yield made
        made.close()


LEASE = 2.0


async def find_errors(there: LeaderCandidates) -> list[str]:
    effects = await there.effects()
    there.close()
    # A leadership that does not depend on a session does not end with one.
    early = set() if there.pooled else EARLY
    return find_leader_faults(there.notes, effects, there.disruptions, LEASE, TRUSTED_SHARE, early)
