"""Faults for schedule tests: in worker processes, in the server and in the server's clock."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

from rota import Rota
from rota.localpg import LocalPostgres
from support.places import PROGRAMS
from support.replication import memory_directory

APP = PROGRAMS / "schedule_app.py"
HOUR = timedelta(hours=1)

FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
"""Debian's libfaketime, which changes the server's clock. Without it, `rota.clock()` is replaced."""

SHIFTED = """
create table public.shift (by interval);
insert into public.shift values (interval '0');
create or replace function rota.clock() returns timestamptz language sql stable as
$$ select statement_timestamp() + shift.by from public.shift $$
"""


class ClockedServer:
    """Separate server with a clock that can be stepped, and a database in it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "shift"
        self._server = LocalPostgres(
            directory / "pg", profile="test", settings={"fsync": "off", "synchronous_commit": "on"}
        )
        self._restarting = asyncio.Lock()
        self.dsn = ""
        self.steps: list[tuple[datetime, timedelta]] = []
        """Clock reading before each step, and the size of the step."""
        self._by = timedelta(0)

    async def open(self) -> None:
        self._write(timedelta(0))
        with self._clocked():
            self.dsn = await asyncio.to_thread(self._server.start)
        async with Rota(self.dsn) as app:
            await app.migrate()
        if FAKETIME is None:
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(SHIFTED)

    async def close(self) -> None:
        await asyncio.to_thread(self._server.stop)

    @contextmanager
    def _clocked(self) -> Iterator[None]:
        """Start processes within this block on the clock of the file."""
        if FAKETIME is None:
            yield
            return
        ours = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del os.environ[name]

    def _write(self, by: timedelta) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{by.total_seconds():+.0f}")
        new.chmod(0o644)
        new.replace(self._file)  # atomic, so that no process reads half of it

    async def restart(self, *, immediately: bool) -> None:
        async with self._restarting:
            with self._clocked():
                await asyncio.to_thread(self._server.restart, immediately=immediately)

    async def set_clock(self, by: timedelta) -> None:
        """Set the clock to this offset from the true time."""
        async with self._restarting:
            self.steps.append((datetime.now(UTC) + self._by, by - self._by))
            self._by = by
            if FAKETIME is not None:
                self._write(by)
                return
            async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as each:
                await each.execute("update public.shift set by = %s", (by,))

    def log(self) -> str:
        return self._server.paths.log.read_text(errors="replace")


@asynccontextmanager
async def clocked_server() -> AsyncIterator[ClockedServer]:
    with memory_directory() as directory:
        one = ClockedServer(directory)
        await one.open()
        try:
            yield one
        finally:
            await one.close()


@dataclass(slots=True)
class Slot:
    pid: int = 0
    frozen: bool = False
    dying: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerProcesses:
    """Worker processes in numbered places; a killed worker is replaced in its place."""

    def __init__(self, process: asyncio.subprocess.Process, dsn: str, notes: Path) -> None:
        self._process = process
        self._dsn = dsn
        self._notes = notes
        self._numbers = count()
        self._born: dict[int, asyncio.Future[int]] = {}
        self._slots: dict[int, Slot] = {}
        self._reading = asyncio.create_task(self._read())
        self.places: list[Slot] = []
        self.did: Counter[str] = Counter()

    async def man(self, many: int, mutant: list[str] | None = None) -> None:
        self.places = [await self._bear(mutant) for _ in range(many)]

    async def _bear(self, mutant: list[str] | None = None) -> Slot:
        number = next(self._numbers)
        order = {
            "number": number,
            "dsn": self._dsn,
            "notes": str(self._notes / f"looks-{number}"),
            "mutant": mutant,
        }
        born = self._born[number] = asyncio.get_running_loop().create_future()
        slot = self._slots[number] = Slot()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        slot.pid = await born
        return slot

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            said = json.loads(line)
            if "born" in said:
                self._born.pop(said["number"]).set_result(said["born"])
            else:
                self._slots[said["number"]].gone.set()

    # Faults

    async def kill(self, place: int) -> None:
        """Kill the worker in this place and start another one."""
        slot = self.places[place]
        slot.dying = True
        os.kill(slot.pid, signal.SIGKILL)
        self.did["kills"] += 1
        await slot.gone.wait()
        self.places[place] = await self._bear()

    async def freeze(self, place: int, seconds: float) -> None:
        slot = self.places[place]
        if slot.frozen or slot.dying:
            return
        slot.frozen = True
        os.kill(slot.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        slot.frozen = False
        if not slot.dying:
            os.kill(slot.pid, signal.SIGCONT)
            self.did["freezes"] += 1

    async def leave(self) -> None:
        """Drain all workers and wait until they are gone."""
        for slot in self.places:
            with suppress(ProcessLookupError):
                os.kill(slot.pid, signal.SIGTERM)
        async with asyncio.timeout(60):
            for slot in self.places:
                await slot.gone.wait()

    def looks(self) -> tuple[int, int]:
        """Return how many polls fired schedules, and how many found that another worker had been faster."""
        lines = [
            line for file in self._notes.glob("looks-*") for line in file.read_text().splitlines()
        ]
        return sum(line != "0" for line in lines), sum(line == "0" for line in lines)

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading


@asynccontextmanager
async def worker_processes(dsn: str, notes: Path) -> AsyncIterator[WorkerProcesses]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(APP), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    one = WorkerProcesses(process, dsn, notes)
    try:
        yield one
    finally:
        await one.close()


class FaultInjector:
    """Random faults for a given time."""

    def __init__(
        self, site: ClockedServer, crew: WorkerProcesses, seed: int, *, longest: float
    ) -> None:
        self._site = site
        self._crew = crew
        self._chance = random.Random(seed)
        self._longest = longest
        """Longest freeze in seconds."""

    async def go_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kills(until))
            group.create_task(self._freezes(until))
            group.create_task(self._freezes(until))
            group.create_task(self._restarts(until, seconds))
            group.create_task(self._steps(until, seconds))

    def _place(self) -> int:
        return self._chance.randrange(len(self._crew.places))

    async def _rest(self, least: float, most: float) -> None:
        await asyncio.sleep(self._chance.uniform(least, most))

    async def _kills(self, until: float) -> None:
        while time.monotonic() < until:
            await self._rest(0.5, 2.0)
            await self._crew.kill(self._place())

    async def _freezes(self, until: float) -> None:
        while time.monotonic() < until:
            await self._rest(0.2, 1.0)
            await self._crew.freeze(self._place(), self._chance.uniform(1.0, self._longest))

    async def _restarts(self, until: float, seconds: float) -> None:
        for number in count():
            await asyncio.sleep(min(seconds * 0.3, self._chance.uniform(8, 15)))
            if time.monotonic() >= until:
                return
            await self._site.restart(immediately=number % 2 == 1)
            self._crew.did["restarts"] += 1

    async def _steps(self, until: float, seconds: float) -> None:
        """Step the clock back by an hour and then forward to the true time."""
        while time.monotonic() < until:
            await asyncio.sleep(min(seconds * 0.2, self._chance.uniform(8, 20)))
            await self._site.set_clock(-HOUR)
            await self._rest(1.0, 3.0)
            await self._site.set_clock(timedelta(0))
            self._crew.did["steps"] += 2


async def rows(dsn: str, query: str) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchall()
