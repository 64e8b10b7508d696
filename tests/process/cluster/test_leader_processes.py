"""Killed and frozen leaders: the old leader stops acting before the new one begins, and that is soon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from rota import Rota
from rota.coord.lease import LeaseClock
from rota.testing.server import DatabaseServer
from support.leader_checks import Notes
from support.leader_helpers import elected, until
from support.leader_processes import NAME, Start, has_acted
from support.pgbouncer import PgBouncer, run_pgbouncer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pooler(rota_server: DatabaseServer) -> Iterator[PgBouncer]:
    with run_pgbouncer(rota_server.dsn) as started:
        yield started


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
