"""Worker processes, and the alerts they report."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from support.alert_helpers import Sql
from support.places import PROGRAMS

APP = PROGRAMS / "alert_worker.py"


class Fleet:
    def __init__(self, dsn: str, directory: Path) -> None:
        self._dsn = dsn
        self.notes = directory / "notes"
        self.notes.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, **environment: str) -> None:
        for _ in range(count):
            command = [sys.executable, str(APP), self._dsn, str(self.notes)]
            process = subprocess.Popen(command, env=os.environ | environment)
            self.processes.append(process)

    async def told(self, db: Sql, count: int) -> list[str]:
        """Return the alerts that all processes reported, after `count` of them and three more rounds."""
        async with asyncio.timeout(60):
            while len(self.notes.read_text().splitlines()) < count:
                await asyncio.sleep(0.02)
        await wait_for_rounds(db, await wait_for_rounds(db) + 3)
        return [line.split(" ", 1)[1] for line in self.notes.read_text().splitlines()]

    def end(self) -> None:
        for each in self.processes:
            if each.poll() is None:
                each.kill()
            each.wait()


async def wait_for_workers(db: Sql, count: int) -> None:
    """Wait for `count` workers, each with a heartbeat after the last one started."""
    async with asyncio.timeout(60):
        while True:
            cursor = await db.execute(
                "select count(*), min(last_beat) > max(started) from rota.workers where state = 'active'"
            )
            if await cursor.fetchone() == (count, True):
                return
            await asyncio.sleep(0.02)


async def wait_for_rounds(db: Sql, beyond: int = 0) -> int:
    """Wait until more than `beyond` rounds were made; return their number."""
    async with asyncio.timeout(60):
        while True:
            cursor = await db.execute("select number from rota.alert_rounds where name = 'alerts'")
            found = await cursor.fetchone()
            if found is not None and found[0] > beyond:
                return int(found[0])
            await asyncio.sleep(0.02)
