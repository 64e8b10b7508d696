"""Killed and frozen leaders: the old leader stops acting before the new one begins, and that is soon."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.leader_candidates import APP, PATH
from cluster.leader_checks import Notes
from coord.leader_helpers import elected, session_lock_pids, until
from pooler.pgbouncer import PgBouncer, run_pgbouncer
from rota import Rota
from rota.coord.lease_clock import LeaseClock
from rota.testing.server import DatabaseServer

NAME = "housekeeping"
LEASE = 1.5
Start = Callable[[str], tuple["subprocess.Popen[bytes]", Notes]]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as started:
        yield started


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that is a candidate and notes when it considers itself leader."""
    started = []

    def start(dsn: str) -> tuple[subprocess.Popen[bytes], Notes]:
        notes = Notes(tmp_path / "notes", "other")
        order = {
            "dsn": dsn,
            "instance": "other",
            "name": NAME,
            "lease": LEASE,
            "notes": str(notes.path),
        }
        process = subprocess.Popen(
            [sys.executable, str(APP), json.dumps(order)],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": PATH},
        )
        started.append(process)
        return process, notes

    yield start
    for process in started:
        process.kill()
        process.wait()


def has_acted(notes: Notes) -> bool:
    notes.read()
    return bool(notes.reigns)


def freeze(process: subprocess.Popen[bytes]) -> float:
    """Stop the process; return a time at which it had stopped."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    return LeaseClock().now()


def last_act(notes: Notes, term: int) -> float:
    """Return a time before which the process considered itself leader in this term for the last time.

    It is noted before the check: a process that was frozen after the check can still write the note.
    """
    notes.read()
    return notes.reigns[term].last


async def test_leader_killed_is_replaced_in_the_next_term(direct_dsn: str, start: Start) -> None:
    process, notes = start(direct_dsn)
    await until(lambda: has_acted(notes))
    async with Rota(direct_dsn) as app, app.leader(NAME, lease=60) as leader:
        process.kill()
        assert (await elected(leader)).number == notes.last[0] + 1


async def test_leader_frozen_is_replaced_and_does_not_act_after_waking(
    direct_dsn: str, start: Start
) -> None:
    process, notes = start(direct_dsn)
    await until(lambda: has_acted(notes))
    async with Rota(direct_dsn) as app, app.leader(NAME, lease=60) as leader:
        frozen = freeze(process)
        assert (await elected(leader)).number == 2
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.5)
    assert last_act(notes, 1) < frozen


async def test_leader_killed_behind_pooler_is_replaced_after_its_lease(
    direct_dsn: str, pooler: PgBouncer, start: Start
) -> None:
    dsn = pooler.before(direct_dsn)
    process, notes = start(dsn)
    await until(lambda: has_acted(notes))
    async with Rota(dsn) as app, app.leader(NAME) as leader:
        process.kill()
        assert (await elected(leader)).number == 2
    assert await session_lock_pids(direct_dsn) == []


async def test_leader_frozen_behind_pooler_does_not_act_after_waking(
    direct_dsn: str, pooler: PgBouncer, start: Start
) -> None:
    dsn = pooler.before(direct_dsn)
    process, notes = start(dsn)
    await until(lambda: has_acted(notes))
    async with Rota(direct_dsn) as app, app.leader(NAME) as leader:
        frozen = freeze(process)
        assert (await elected(leader)).number == 2
        process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.5)
    assert last_act(notes, 1) < frozen
