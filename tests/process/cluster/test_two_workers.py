"""Two `rota worker` processes with a log each, one database and one schedule.

Over a hundred ticks, each execution appears in exactly one of the logs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from support.fleet import fetch_row, wait_for_row

pytestmark = pytest.mark.slow

TICKS = 100
EVERY = 0.12

MODULE = f"""
import logging

from rota import Context, Rota

app = Rota(poll_interval=0.25)
log = logging.getLogger("beat")

@app.schedule(every={EVERY}, overlap="allow", catch_up="all", max_runs={TICKS})
@app.task
async def beat(ctx: Context) -> None:
    log.warning("executed %s", ctx.scheduled_for.isoformat())
"""


def start_worker(dsn: str, directory: Path, log: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "ROTA_DATABASE_URL": dsn, "PYTHONPATH": path}
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "rota", "worker", "beating:app"],
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def executed(log: Path) -> Counter[datetime]:
    lines = log.read_text().splitlines()
    return Counter(
        datetime.fromisoformat(line.rpartition("executed ")[2].split()[0])
        for line in lines
        if "executed " in line
    )


async def test_schedule_with_two_workers_executes_each_tick_once(
    rota_dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "beating.py").write_text(MODULE)
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    servers = [start_worker(rota_dsn, tmp_path, log) for log in logs]
    try:
        await wait_for_row(rota_dsn, "select count(*) from rota.outcomes", (TICKS,), within=60)
        for each in servers:
            each.terminate()
        assert [await asyncio.to_thread(each.wait, 30) for each in servers] == [0, 0]
    finally:
        for each in servers:
            if each.poll() is None:
                each.kill()
                each.wait()
    one, two = map(executed, logs)
    print(f"\n{len(one)} in the one, {len(two)} in the other")
    assert set((one + two).values()) == {1}
    ticks = sorted(one + two)
    assert len(ticks) == TICKS
    assert {b - a for a, b in pairwise(ticks)} == {timedelta(seconds=EVERY)}
    # Both workers executed ticks; otherwise the test would prove nothing.
    assert min(len(one), len(two)) >= 5
    assert await fetch_row(rota_dsn, "select count(distinct pid) from rota.ticks") == (2,)
