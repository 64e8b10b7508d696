"""Several processes under one parent, with small programs in place of workers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.cli import supervisor
from rota.cli.exit_codes import FAILED, OK
from rota.cli.supervisor import Supervisor
from support.terminal import APPS, is_alive


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(supervisor, "FIRST_RESTART_DELAY_SECONDS", 0.01)
    return tmp_path / "notes"


@asynccontextmanager
async def running(
    notes: Path, end: str, size: int
) -> AsyncIterator[tuple[Supervisor, asyncio.Task[int]]]:
    """Supervisor with all children up. All are ended afterwards."""
    made = Supervisor([sys.executable, "-S", str(APPS / "child.py"), str(notes), end], size)
    task = asyncio.create_task(made.run())
    try:
        await until_up(made, size)
        yield made, task
    finally:
        pids = [child.pid for child in made._children]
        for child in made._children:
            child.send_signal(signal.SIGKILL)
        made._stopping.set()
        await task
        assert not any(map(is_alive, pids))


async def until_up(made: Supervisor, size: int, but: int = 0) -> None:
    async with asyncio.timeout(60):
        while [child.is_up and child.pid != but for child in made._children] != [True] * size:
            await asyncio.sleep(0.005)


async def wait_until_gone(made: Supervisor, pid: int) -> None:
    async with asyncio.timeout(60):
        while pid in [child.pid for child in made._children]:
            await asyncio.sleep(0.005)


async def wait_for_signals(notes: Path, expected: list[str]) -> None:
    async with asyncio.timeout(60):
        while not notes.exists() or notes.read_text().split() != expected:  # noqa: ASYNC240
            await asyncio.sleep(0.005)


async def test_supervisor_signal_is_forwarded_to_each_process_once(notes: Path) -> None:
    async with running(notes, "1", 3) as (made, task):
        made.stop(signal.SIGINT)

        assert await task == OK
    await wait_for_signals(notes, ["SIGINT"] * 3)


async def test_supervisor_second_signal_is_forwarded(notes: Path) -> None:
    async with running(notes, "2", 1) as (made, task):
        made.stop(signal.SIGINT)
        await wait_for_signals(notes, ["SIGINT"])
        made.stop(signal.SIGTERM)

        assert await task == OK
    await wait_for_signals(notes, ["SIGINT", "SIGTERM"])


async def test_supervisor_third_signal_ends_without_waiting(notes: Path) -> None:
    async with running(notes, "never", 2) as (made, task):
        for _ in range(3):
            made.stop(signal.SIGTERM)

        assert await task == FAILED


async def test_supervisor_dead_process_is_replaced(notes: Path) -> None:
    async with running(notes, "1", 2) as (made, task):
        victim = next(iter(made._children)).pid

        os.kill(victim, signal.SIGKILL)
        await until_up(made, 2, but=victim)
        made.stop(signal.SIGTERM)

        assert await task == OK


async def test_supervisor_process_failing_to_start_repeatedly_stops_all(
    notes: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(notes, "1", 2) as (made, task):
        Path(f"{notes}.broken").touch()  # noqa: ASYNC240
        os.kill(next(iter(made._children)).pid, signal.SIGKILL)

        assert await task == FAILED
    assert (
        "ended with exit code 9 before it was ready, failure 5 in a row; giving up" in caplog.text
    )
    await wait_for_signals(notes, ["SIGTERM"])


async def test_supervisor_first_process_failing_to_start_sets_exit_code(notes: Path) -> None:
    Path(f"{notes}.broken").touch()  # noqa: ASYNC240

    code = await Supervisor(
        [sys.executable, "-S", str(APPS / "child.py"), str(notes), "1"], 3
    ).run()

    assert code == 9


async def test_supervisor_stop_during_start_exits_with_0(notes: Path) -> None:
    made = Supervisor([sys.executable, "-S", str(APPS / "child.py"), str(notes), "1"], 3)
    task = asyncio.create_task(made.run())
    await asyncio.sleep(0)

    made.stop(signal.SIGTERM)

    assert await task == OK


async def test_supervisor_drained_process_is_not_replaced(notes: Path) -> None:
    async with running(notes, "1", 2) as (made, task):
        leaving, staying = list(made._children)

        leaving.send_signal(signal.SIGUSR1)
        await wait_until_gone(made, leaving.pid)

        await until_up(made, 1)
        assert not task.done()
        staying.send_signal(signal.SIGUSR1)
        await asyncio.wait([task], timeout=60)
        assert task.done()
        assert task.result() == OK


async def test_supervisor_process_that_exits_without_drain_is_replaced(notes: Path) -> None:
    async with running(notes, "1", 2) as (made, task):
        leaving = next(iter(made._children))

        leaving.send_signal(signal.SIGUSR2)
        await until_up(made, 2, but=leaving.pid)

        made.stop(signal.SIGTERM)
        assert await task == OK


async def test_supervisor_processes_dying_after_start_are_always_replaced(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their jobs may kill them, and such jobs are quarantined in the end."""
    monkeypatch.setattr(supervisor, "MAX_RESTART_DELAY_SECONDS", 0.02)
    async with running(notes, "1", 1) as (made, task):
        Path(f"{notes}.brief").touch()  # noqa: ASYNC240
        victim = next(iter(made._children)).pid
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(60):
            limit = supervisor.MAX_FAILED_STARTS
            while not notes.exists() or len(notes.read_text().split()) <= limit:  # noqa: ASYNC240
                await asyncio.sleep(0.005)
        Path(f"{notes}.brief").unlink()  # noqa: ASYNC240
        # A running child may already have seen the file `brief` without having ended yet.
        for child in list(made._children):
            victim = child.pid
            child.send_signal(signal.SIGKILL)

        await until_up(made, 1, but=victim)

        made.stop(signal.SIGTERM)
        assert await task == OK


def test_restart_delay_grows_with_failures_up_to_maximum() -> None:
    rests = [supervisor.restart_delay(deaths) for deaths in range(1, 10)]

    assert rests[:3] == [0.2, 0.4, 0.8]
    assert rests == sorted(rests)
    assert supervisor.restart_delay(100_000) == supervisor.MAX_RESTART_DELAY_SECONDS == rests[-1]
