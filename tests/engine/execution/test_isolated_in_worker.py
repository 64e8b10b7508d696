"""Isolated tasks in a worker with a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota import Rota, RunCancelled, RunFailed
from rota.errors import DefinitionError
from rota.testing import Harness
from support import isolated_tasks as isolated
from support.queries import ONCE, fetch
from support.workbench import is_alive, until_written


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Harness(isolated.app, rota_dsn) as harness:
        yield harness.app


async def test_isolated_task_crash_or_timeout_fails_only_its_run(app: Rota, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with app.worker() as worker:
        before = worker.id
        crash = await isolated.segfault.options(retry=ONCE).start()
        hang = await isolated.hold_the_gil.options(retry=ONCE, timeout=0.3).start(str(file))
        with pytest.raises(RunFailed, match="was ended by SIGSEGV"):
            await crash.result(timeout=60)
        with pytest.raises(RunFailed, match=r"timeout of 0.3 s"):
            await hang.result(timeout=60)
        assert not is_alive(int(file.read_text()))
        assert await (await isolated.add.start(1, 2)).result(timeout=60) == 3
        assert worker.id == before


async def test_isolated_task_after_exit_resumes_from_checkpoint(app: Rota) -> None:
    """The process exits in each attempt, after the worker has stored a checkpoint for it."""
    async with app.worker():
        run = await isolated.resume_from_checkpoint.start()
        assert await run.result(timeout=60) == [1, 2, 3]


async def test_isolated_task_cancel_stops_its_code(app: Rota, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with app.worker():
        run = await isolated.until_cancelled.start(str(file))
        await until_written(file)
        assert await run.cancel() == "requested"
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    assert file.read_text() == "told"


async def test_isolated_task_requeues_when_worker_drains(
    app: Rota, rota_dsn: str, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    async with app.worker():
        run = await isolated.until_draining.start(str(file))
        pid = int(await until_written(file))
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 10  # shorter than the drain timeout
    assert not is_alive(pid)
    assert await run.status() == "queued"
    assert await fetch(rota_dsn, "select count(*) from rota.attempts") == [(0,)]


async def test_worker_start_with_unimportable_task_is_refused(rota_dsn: str) -> None:
    async with Harness(isolated.elsewhere, rota_dsn) as harness:
        with pytest.raises(DefinitionError, match="where it is not"):
            async with harness.app.worker():
                pass
