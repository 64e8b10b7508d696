"""A worker process, and its cost per second while it waits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import AsyncConnection

from support.fleet import wait_for_row

WATCHED = 4.0

MODULE = """
from rota import Context, Rota

app = Rota()

@app.task
async def doze(ctx: Context, n: int) -> int:
    await ctx.sleep(days=1)
    return n
"""


class Cost(NamedTuple):
    """Cost of a worker: transactions and processor time per second, and megabytes."""

    transactions: float
    processor: float
    megabytes: float

    def __str__(self) -> str:
        return (
            f"{self.transactions:.1f} transactions/s, {self.processor:.2%} of a processor, "
            f"{self.megabytes:.1f} MB"
        )


@asynccontextmanager
async def worker(dsn: str, directory: Path) -> AsyncIterator[int]:
    """Run a worker process; yield its pid."""
    (directory / "sleepers.py").write_text(MODULE)
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "ROTA_DATABASE_URL": dsn, "PYTHONPATH": path}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "rota", "worker", "sleepers:app"),
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        here = f"select count(*) from rota.workers where pid = {process.pid} and state = 'active'"
        await wait_for_row(dsn, here, (1,), within=60)
        yield process.pid
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def measure_cost(db: AsyncConnection[Any], pid: int) -> Cost:
    """Measure a worker while it has no jobs to run."""
    await asyncio.sleep(1)  # until it is idle
    at, used, asked = time.monotonic(), _processor(pid), await _transactions(db)
    await asyncio.sleep(WATCHED)
    passed = time.monotonic() - at
    return Cost(
        (await _transactions(db) - asked - 2) / passed,  # two of them are this test's
        (_processor(pid) - used) / passed,
        _megabytes(pid),
    )


def _processor(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _megabytes(pid: int) -> float:
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    )


async def _transactions(db: AsyncConnection[Any]) -> int:
    await db.execute("select pg_stat_force_next_flush()")
    cursor = await db.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    )
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])
