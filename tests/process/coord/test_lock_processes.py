"""Locks of processes that are killed, stopped or forked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import AsyncConnection

from rota import Rota
from rota.errors import LockLost
from support.lock_faults import wait_for_renewals, wait_until_awaited
from support.places import PROGRAMS

HOLDER = PROGRAMS / "lock_holder.py"
FORKER = PROGRAMS / "lock_forker.py"
TTL = 5.0
LONG_TTL = 60.0

Db = AsyncConnection[tuple[Any, ...]]


class Process:
    """Subprocess that prints lines of JSON."""

    def __init__(self, *command: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True
        )

    async def says(self, within: float = 60) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(within):
            line = await asyncio.to_thread(self._process.stdout.readline)
        assert line, f"it has ended: {self._process.wait()}"
        said: dict[str, Any] = json.loads(line)
        return said

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        return self._process.wait(60)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture
def holder(rota_dsn: str, request: pytest.FixtureRequest) -> Iterator[Process]:
    process = Process(HOLDER, rota_dsn, getattr(request, "param", TTL))
    yield process
    process.end()


def process_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


async def wait_until_stopped(pid: int) -> None:
    async with asyncio.timeout(60):
        while process_state(pid) != "T":
            await asyncio.sleep(0.005)


async def test_lock_of_killed_process_is_free_after_expiry(
    holder: Process, rota_app: Rota, db: Db
) -> None:
    said = await holder.says()
    await wait_for_renewals(db, 1, "invoices")
    waiting = asyncio.create_task(rota_app.lock("invoices").acquire())
    await wait_until_awaited(db)
    holder.send(signal.SIGKILL)
    began = time.monotonic()
    [[left]] = await (
        await db.execute(
            "select extract(epoch from expires - clock_timestamp())::float8 from rota.locks"
        )
    ).fetchall()
    lock = await waiting
    took = time.monotonic() - began
    await lock.release()
    assert lock.token > said["token"]
    assert took > left - 0.1


async def test_lock_of_stopped_process_is_not_held_on_resume(
    holder: Process, rota_app: Rota
) -> None:
    said = await holder.says()
    assert said["held"]
    holder.send(signal.SIGSTOP)
    async with rota_app.lock("invoices") as lock:
        holder.send(signal.SIGCONT)
        woken = await holder.says()
        assert woken["held"] is False
        assert woken["slept"] > TTL / 2
        assert "was lost" in (await holder.says())["told"]
        assert lock.held
    assert holder.wait() == 0


@pytest.mark.parametrize("holder", [LONG_TTL], indirect=True)
async def test_lock_of_briefly_stopped_process_is_still_held(
    holder: Process, rota_app: Rota
) -> None:
    said = await holder.says()
    holder.send(signal.SIGSTOP)
    await wait_until_stopped(said["pid"])
    holder.send(signal.SIGCONT)
    assert (await holder.says())["held"] is True
    assert (await holder.says())["told"] is None
    async with rota_app.lock("invoices", wait=60):
        pass
    assert holder.wait() == 0


@pytest.mark.parametrize("holder", [LONG_TTL], indirect=True)
async def test_lock_row_identifies_the_holder(holder: Process, rota_app: Rota, db: Db) -> None:
    said = await holder.says()
    found = await db.execute("select host, pid, label, token, instance is not null from rota.locks")
    assert await found.fetchall() == [
        (os.uname().nodename, said["pid"], "holder", said["token"], True)
    ]


async def test_lock_in_forked_child_is_not_held(rota_dsn: str, db: Db) -> None:
    process = Process(FORKER, rota_dsn, 4)
    try:
        child = await process.says()
        assert child == {
            "held": False,
            "told": "lock 'invoices' (token 1) was lost: it is held by the process that this one was "
            "forked from",
            "free": False,
            "other": True,
        }
        parent = await process.says()
        assert parent == {"child": 0, "held": True, "token": 1}
        assert await process.says() == {"released": True}
        assert process.wait() == 0
    finally:
        process.end()
    found = await db.execute("select count(distinct pid) from rota.locks where name <> 'invoices'")
    assert await found.fetchall() == [(1,)]


async def test_lock_of_process_that_exits_without_release_expires(
    rota_dsn: str, rota_app: Rota, db: Db
) -> None:
    """The process exits without releasing the lock, so the lock expires."""
    code = (
        "import sys; from rota import Rota;"
        "app = Rota(sys.argv[1]); print(app.lock('invoices', ttl=1).sync.acquire().token, flush=True);"
        "import os; os._exit(0)"
    )
    process = Process("-c", code, rota_dsn)
    assert process.wait() == 0
    process.end()
    [[expires]] = await (await db.execute("select expires from rota.locks")).fetchall()
    async with rota_app.lock("invoices") as lock:
        assert lock.token == 2
        [[acquired]] = await (await db.execute("select acquired from rota.locks")).fetchall()
    assert acquired >= expires


async def test_lock_of_closed_app_is_lost_and_released(rota_dsn: str, rota_app: Rota) -> None:
    """The lock is also released, so that waiting instances need not wait for its expiry."""
    app = Rota(rota_dsn)

    async def body() -> None:
        async with app.lock("invoices", on_lost="cancel") as lock:
            closing = asyncio.create_task(app.close())
            try:
                await asyncio.sleep(30)
            finally:
                await closing
                assert not lock.held
                assert lock.lost.is_set()
                async with rota_app.lock("invoices", wait=0.1):
                    pass

    with pytest.raises(LockLost, match="the app was closed"):
        await body()
    async with app.lock("invoices", wait=1):  # using the app opens it again
        pass
    await app.close()
