"""Servers that a test can stop, and a worker in a separate process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.app.task import Task
from rota.localpg import LocalPostgres, postmaster
from support.places import PROGRAMS
from support.replication import PrimaryAndStandby, memory_directory

APP = PROGRAMS / "outage_worker.py"


class Worker:
    """Worker process with its notes, its log and its processor time."""

    def __init__(self, dsn: str, directory: Path) -> None:
        self._notes, self._said = directory / "notes", directory / "said"
        self._gate = directory / "gate"
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(APP), dsn, str(self._notes)], stderr=said
            )

    def notes(self) -> Counter[int]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return Counter(int(line.split()[0]) for line in lines)

    @property
    def gate(self) -> str:
        """Gate of jobs that run until `open_gate` is called."""
        return str(self._gate)

    async def open_gate(self, count: int) -> None:
        """Let the jobs at the gate end, and wait until `count` have."""
        self._gate.touch()
        ended = self._notes.with_name("notes.ended")
        async with asyncio.timeout(60):
            while len(ended.read_text().splitlines()) < count:
                await asyncio.sleep(0.02)

    def said(self) -> list[str]:
        return self._said.read_text().splitlines()

    def cpu(self) -> float:
        """Return the processor seconds that it has used."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[[str], Worker]]:
    started: list[Worker] = []

    def start(dsn: str) -> Worker:
        started.append(Worker(dsn, tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait()


@pytest.fixture
async def server() -> AsyncIterator[LocalPostgres]:
    """Separate server for this test, with Rota's tables."""
    with memory_directory() as directory:
        local = LocalPostgres(directory / "pg", profile="test")
        dsn = await asyncio.to_thread(local.start)
        try:
            async with Rota(dsn) as app:
                await app.migrate()
            yield local
        finally:
            await asyncio.to_thread(local.stop)


@pytest.fixture
async def primary_and_standby() -> AsyncIterator[PrimaryAndStandby]:
    """Primary with Rota's tables, and a standby that replicates it."""
    with memory_directory() as directory:
        two = PrimaryAndStandby(directory)
        await asyncio.to_thread(two.start)
        try:
            async with Rota(two.primary.dsn) as app:
                await app.migrate()
            yield two
        finally:
            await asyncio.to_thread(two.stop)


async def kill_server(server: LocalPostgres) -> None:
    """Kill a server and wait for sessions that outlive it for a moment."""
    await asyncio.to_thread(server.kill)
    async with asyncio.timeout(60):
        while postmaster.find_orphans(server.paths.data):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def starting_app(dsn: str, **given: Any) -> AsyncIterator[tuple[Rota, Task[..., int]]]:
    """App that starts the task of the worker process."""
    async with AsyncExitStack() as opened:
        app = await opened.enter_async_context(Rota(dsn, **given))

        async def note(n: int, gate: str = "") -> int:
            return n

        yield app, app.task(note)
