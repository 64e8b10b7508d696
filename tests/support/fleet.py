"""Fleet of real worker processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.places import PROGRAMS

APP = PROGRAMS / "worker_app.py"


class Fleet:
    """Worker processes on one database, and their notes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, dsn: str, count: int, concurrency: int = 50) -> None:
        for _ in range(count):
            notes = self._directory / f"notes-{len(self._processes)}"
            command = [sys.executable, str(APP), dsn, str(notes), str(concurrency)]
            self._processes.append(subprocess.Popen(command))

    def stop(self) -> list[int]:
        """Ask all processes to stop; return their exit codes."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        return [process.wait(60) for process in self._processes]

    def kill(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()

    def notes(self) -> Counter[int]:
        """Return how often each number was handled in all processes."""
        lines = (
            line.split()
            for file in self._directory.glob("notes-*")
            for line in file.read_text().splitlines()
        )
        return Counter(int(number) for number, _ in lines)


async def fetch_row(dsn: str, query: str) -> Any:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchone()


async def wait_for_row(dsn: str, query: str, wanted: Any, within: float) -> None:
    """Wait until the query returns `wanted`. Retry while the server is unreachable."""
    answer: Any = None
    try:
        async with asyncio.timeout(within):
            while answer != wanted:
                try:
                    answer = await fetch_row(dsn, query)
                except psycopg.OperationalError:
                    answer = "the server is away"
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{query}: {answer} after {within:g} s, not {wanted}")
