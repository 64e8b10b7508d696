"""PostgreSQL goes away and comes back: live stays 200, ready gives the reason, and no restart is needed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota import Rota
from rota.localpg import LocalPostgres
from support.outage_fixtures import kill_server
from support.replication import memory_directory
from support.scale import scale
from support.server_process import APPS, Answer, ServerProcess

AWAY = scale(3.0, 30.0)
ASK_EVERY = 0.1
KEY = "k" * 22

pytestmark = pytest.mark.slow


@pytest.fixture
async def server() -> AsyncIterator[LocalPostgres]:
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
def worker(server: LocalPostgres, tmp_path: Path) -> Iterator[ServerProcess]:
    words = ["rota", "worker", "watched:app", "--health-port", "{port}", "--auth", "local"]
    instance = ServerProcess(words, server.dsn, tmp_path / "said", ROTA_LOCAL_KEY=KEY)
    yield instance
    if instance.process.poll() is None:
        instance.process.kill()
    instance.process.wait()


async def wait_for_ready_status(instance: ServerProcess, status: int, within: float = 60) -> Answer:
    """Request readiness until it answers with `status`."""
    async with asyncio.timeout(within):
        while True:
            with suppress(OSError):
                answer = await asyncio.to_thread(instance.ask, "/health/ready")
                if answer.status == status:
                    return answer
            assert instance.process.poll() is None, instance.said
            await asyncio.sleep(0.05)


async def test_worker_health_during_outage_stays_live_and_recovers(
    server: LocalPostgres, worker: ServerProcess
) -> None:
    await wait_for_ready_status(worker, 200)
    pid = worker.process.pid
    await kill_server(server)
    went = time.monotonic()
    told = await wait_for_ready_status(worker, 503, within=60)
    noticed = time.monotonic() - went
    assert told.body["reasons"][0]["code"] == "database"

    slowest, said = 0.0, []
    while time.monotonic() < went + AWAY:
        began = time.monotonic()
        live = await asyncio.to_thread(worker.ask, "/health/live")
        slowest = max(slowest, time.monotonic() - began)
        assert live.status == 200
        answer = await asyncio.to_thread(worker.ask, "/health/ready")
        assert answer.status == 503
        said.append(answer.body["reasons"][0]["message"])
        signed_in = partial(worker.ask, "/metrics", Authorization=f"Bearer {KEY}")
        metrics = await asyncio.to_thread(signed_in)
        assert metrics.status == 200
        await asyncio.sleep(ASK_EVERY)
    # The reason includes the duration of the outage, which grows.
    assert "unreachable for" in said[-1]
    assert int(said[-1].split("unreachable for ")[1].split()[0]) >= AWAY - 2

    await asyncio.to_thread(server.restart)
    back = time.monotonic()
    await wait_for_ready_status(worker, 200, within=60)
    recovered = time.monotonic() - back
    assert await run_double(server.dsn) == 42
    assert worker.process.pid == pid
    assert worker.process.poll() is None
    worker.process.terminate()
    assert await asyncio.to_thread(worker.process.wait, 60) == 0
    assert "Traceback" not in worker.said
    if scale(False, True):
        assert noticed < 3
        assert slowest < 1
        assert recovered < 5
    print(f"noticed in {noticed:.2f} s, live in {slowest * 1000:.0f} ms, back in {recovered:.2f} s")


async def run_double(dsn: str) -> Any:
    async with Rota(dsn) as app:

        @app.task
        async def double(n: int) -> int:
            return 0  # the worker runs its own version of this task

        return await (await double.start(n=21)).result(timeout=60)


async def test_worker_health_while_draining_is_live_and_not_ready(
    server: LocalPostgres, worker: ServerProcess, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    await wait_for_ready_status(worker, 200)
    async with Rota(server.dsn) as app:

        @app.task
        async def double(n: int, gate: str = "") -> int:
            return 0

        await double.start(n=1, gate=str(gate))
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as db:
            while not (await (await db.execute("select 1 from rota.claims")).fetchone()):
                await asyncio.sleep(0.02)
    worker.process.terminate()
    told = await wait_for_ready_status(worker, 503)

    assert told.body["reasons"][0]["code"] == "draining"
    assert (await asyncio.to_thread(worker.ask, "/health/live")).status == 200
    gate.touch()
    assert await asyncio.to_thread(worker.process.wait, 60) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--health-host", "0.0.0.0", "--auth", "local"], 2, "can be reached from other machines"),
        (["--processes", "2"], 2, "does not work with --processes"),
    ],
)
def test_worker_command_invalid_health_options_are_refused(
    rota_dsn: str, words: list[str], code: int, said: str
) -> None:
    command = [sys.executable, "-m", "rota", "worker", "watched:app", "--health-port", "0"]
    ended = subprocess.run(
        [*command, *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=APPS,
        env={**os.environ, "ROTA_DATABASE_URL": rota_dsn},
    )

    assert ended.returncode == code
    assert said in ended.stderr
