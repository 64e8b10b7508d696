"""Processes with a stepped wall clock, and checks of the lock as they see it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.errors import LockLost
from support.places import TESTS

STEPS = ("+0", "+3600", "-3600", "+3600", "+0")
EACH = 0.5
"""Seconds between two steps of the clock."""

TTL = 4.0
HOUR = 3600


def faketime() -> str:
    """Return the path of libfaketime, for LD_PRELOAD, or skip the test if it is not installed."""
    for directory in sorted(Path("/usr/lib").glob("*/faketime")):
        for name in ("libfaketimeMT.so.1", "libfaketime.so.1"):
            if (directory / name).exists():
                return str(directory / name)
    pytest.skip("there is no libfaketime here; on Debian and Ubuntu: apt install libfaketime")


class SteppedProcess:
    """Process with its own wall clock, and the lines it printed."""

    def __init__(self, process: asyncio.subprocess.Process, clock: Path) -> None:
        self._process = process
        self._clock = clock
        self.said: list[dict[str, Any]] = []

    async def hears(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.said.append(json.loads(line))
        assert await self._process.wait() == 0

    async def began(self) -> None:
        async with asyncio.timeout(60):
            while not self.said:
                await asyncio.sleep(0.02)

    async def step(self, steps: Sequence[str] = STEPS) -> None:
        for each in steps:
            # A rename replaces the file at once, so that the process never reads it while it is empty.
            beside = self._clock.with_suffix(".new")
            beside.write_text(each)
            beside.rename(self._clock)
            await asyncio.sleep(EACH)

    def was_stepped(self) -> bool:
        """True if its wall clock moved forward and back by hours and the trusted clock did not."""
        walls: list[float] = [later["wall"] - each["wall"] for each, later in pairwise(self.said)]
        trusted: list[float] = [
            later["trust"] - each["trust"] for each, later in pairwise(self.said)
        ]
        return (
            max(walls) > HOUR - 60
            and min(walls) < 60 - HOUR
            and 0 <= min(trusted) < max(trusted) < 10
        )


@asynccontextmanager
async def stepped_process(
    dsn: str, what: str, directory: Path, mutant: str = ""
) -> AsyncIterator[SteppedProcess]:
    clock = directory / "clock"
    clock.write_text(STEPS[0])
    environment = {
        **os.environ,
        "LD_PRELOAD": faketime(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.programs.stepped_clock", dsn, what, str(TTL)),
        *([mutant] if mutant else []),
        cwd=TESTS,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    started = SteppedProcess(process, clock)
    hearing = asyncio.create_task(started.hears())
    try:
        await started.began()
        yield started
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await hearing
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        hearing.cancel()


async def errors_while_acquiring(
    dsn: str, app: Rota, directory: Path, mutant: str = ""
) -> list[str]:
    """Step the clock of a waiting process while this one holds the lock. Return the errors found."""
    lock = await app.lock("invoices", ttl=TTL).acquire()
    async with stepped_process(dsn, "want", directory, mutant) as other:
        await other.step(STEPS[1:2] if mutant else STEPS)
    assert other.was_stepped() or mutant
    wrong = ["taken twice"] if any(each["got"] for each in other.said) else []
    try:
        await lock.release()
    except LockLost:
        wrong.append("lost")
    return wrong
