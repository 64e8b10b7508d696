"""Isolated tasks: if the code kills or blocks its process, the attempt fails and the worker survives."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine import dies_when_read, isolated
from engine.workbench import Workbench, error, is_alive, until_gone, until_written
from rota.engine.execution.executor import StopReason
from rota.engine.execution.process import child_process
from rota.engine.execution.process import executor as process_executor
from rota.engine.execution.process.executor import ProcessExecutor
from rota.model.outcome import Discarded, FinalOutcome, Outcome, Retried, Returned, Succeeded


@pytest.fixture
async def bench() -> AsyncIterator[Workbench]:
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        yield bench


@pytest.fixture
async def single() -> AsyncIterator[Workbench]:
    """Yield a bench with one process, which runs every job while it is alive."""
    async with Workbench(ProcessExecutor, max_processes=1) as bench:
        yield bench


def number(outcome: Outcome) -> int:
    assert isinstance(outcome, Succeeded), outcome
    return int(outcome.result or "")


async def test_it_runs_in_another_process_with_its_arguments(bench: Workbench) -> None:
    assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")
    assert number(await bench.run(isolated.pid)) != os.getpid()
    assert number(await bench.run(isolated.awaited_pid)) != os.getpid()


async def test_a_process_serves_one_job_after_the_other(single: Workbench) -> None:
    pids = {number(await single.run(task)) for task in (isolated.pid, isolated.awaited_pid) * 3}
    assert len(pids) == 1
    assert [await single.run(isolated.count) for _ in range(3)] == [
        Succeeded("1"),
        Succeeded("2"),
        Succeeded("3"),
    ]


async def test_jobs_share_a_loop_and_no_context_variables(single: Workbench) -> None:
    loops = {number(await single.run(isolated.which_loop)) for _ in range(3)}
    assert len(loops) == 1
    for task in (isolated.context_variable, isolated.awaited_context_variable) * 2:
        assert await single.run(task) == Succeeded('"nothing"')


async def test_processes_run_side_by_side_up_to_their_number(
    bench: Workbench, tmp_path: Path
) -> None:
    files = [tmp_path / str(n) for n in range(2)]
    jobs = [bench.start(isolated.spin, file=str(file)) for file in files]
    pids = {int(await until_written(file)) for file in files}
    assert len(pids) == 2

    third = bench.start(isolated.pid)
    assert await bench.outcome(third) == Returned()  # no process was free within a second
    for job in jobs:
        bench.stop(job, StopReason.CANCELLED)


async def test_a_job_waits_a_moment_for_a_process_and_gets_it(
    single: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    await single.run(isolated.pid)  # the process has started
    first = single.start(isolated.nap, file=str(file), seconds=0.3)
    second = single.start(isolated.pid)
    assert await single.outcome(first) == await single.outcome(second)


# Processes that die


@pytest.mark.parametrize(
    ("task", "args", "how"),
    [
        (isolated.segfault, {}, "was ended by SIGSEGV"),
        (isolated.leave, {"code": 3}, "ended with exit code 3"),
        (isolated.leave, {"code": 0}, "ended with exit code 0"),
        (isolated.awaited_leave, {"code": 4}, "ended with exit code 4"),
        (isolated.close_everything, {}, "ended with exit code 1"),
        (isolated.talk_nonsense, {}, "was ended by SIGKILL"),
    ],
    ids=str,
)
async def test_a_process_that_dies_fails_its_attempt_and_nothing_else(
    bench: Workbench, tmp_path: Path, task: Any, args: dict[str, Any], how: str
) -> None:
    file = tmp_path / "pid"
    neighbour = bench.start(isolated.until_cancelled, file=str(file))
    await until_written(file)

    outcome = await bench.run(task, **args)

    assert isinstance(outcome, Retried)
    kind, message = error(outcome)
    assert kind == "rota.errors.ProcessLost"
    assert how in message
    assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")  # in a new process
    assert not bench.outcomes[neighbour].done()
    bench.stop(neighbour, StopReason.CANCELLED)
    assert await bench.outcome(neighbour) == FinalOutcome("cancelled", None)


async def test_a_process_killed_from_outside_says_what_it_may_have_been(
    bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    job = bench.start(isolated.spin, file=str(file))
    os.kill(int(await until_written(file)), signal.SIGKILL)
    _, message = error(await bench.outcome(job))
    assert (
        "was ended by SIGKILL: it was killed, possibly by the system for lack of memory" in message
    )


async def test_an_idle_process_that_dies_costs_nobody_an_attempt(single: Workbench) -> None:
    """The job is sent before the worker detects the death: it never began, so a new process runs it."""
    first = number(await single.run(isolated.pid))
    os.kill(first, signal.SIGKILL)
    assert number(await single.run(isolated.pid)) != first


@pytest.mark.parametrize("served", [False, True])
async def test_a_process_that_dies_of_what_it_imports_fails_the_attempt(
    single: Workbench, served: bool
) -> None:
    """A second process is tried only if the job may not be the cause of the death."""
    if served:
        await single.run(isolated.pid)
    kind, message = error(await single.run(dies_when_read.never))
    assert kind == "rota.errors.ProcessLost"
    assert "ended with exit code 7 before it began" in message


async def test_memory_beyond_a_limit_is_an_ordinary_failure(single: Workbench) -> None:
    assert error(await single.run(isolated.eat, most=2**31))[0] == "MemoryError"


async def test_what_a_dead_process_had_started_dies_too(bench: Workbench, tmp_path: Path) -> None:
    """The forked process holds the socket open, and the death is detected nevertheless."""
    file = tmp_path / "pid"
    outcome = await bench.run(isolated.leave_one_behind, file=str(file))
    assert "ended with exit code 3" in error(outcome)[1]
    await until_gone(int(file.read_text()), within=2)


# Deadlines


@pytest.mark.parametrize(
    "task", [isolated.spin, isolated.hold_the_gil, isolated.spin_elsewhere], ids=str
)
async def test_at_its_deadline_code_is_killed_whatever_it_does(
    bench: Workbench, tmp_path: Path, task: Any
) -> None:
    file = tmp_path / "pid"
    outcome = await bench.outcome(bench.start(task, 0.3, file=str(file)))
    assert error(outcome) == (
        "rota.errors.TaskTimeout",
        "it took longer than its timeout of 0.3 s",
    )
    assert not is_alive(int(file.read_text()))
    assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")


async def test_what_it_waited_for_is_killed_with_it(bench: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    await bench.outcome(bench.start(isolated.wait_for_a_program, 0.3, file=str(file)))
    await until_gone(int(file.read_text()), within=2)


async def test_starting_a_process_does_not_count_for_the_deadline(bench: Workbench) -> None:
    """The start of an interpreter takes longer than this deadline."""
    assert await bench.outcome(bench.start(isolated.add, 0.05, a=1, b=2)) == Succeeded("3")


async def test_a_process_that_never_gets_ready_is_killed(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_executor, "BEGIN_TIMEOUT_SECONDS", 0.001)
    assert "was not ready to run it within" in error(await bench.run(isolated.pid))[1]


# Stop requests


@pytest.mark.parametrize(
    ("why", "expected"),
    [
        (StopReason.CANCELLED, FinalOutcome("cancelled", None)),
        (StopReason.DRAINED, Returned()),
        (StopReason.CLAIM_LOST, Discarded()),
    ],
)
async def test_code_that_is_told_to_stop_and_does(
    bench: Workbench, tmp_path: Path, why: StopReason, expected: Outcome
) -> None:
    plain, awaits = tmp_path / "plain", tmp_path / "awaits"
    jobs = [
        bench.start(isolated.until_cancelled, file=str(plain)),
        bench.start(isolated.awaits_for_ever, file=str(awaits)),
    ]
    pids = {await until_written(plain), await until_written(awaits)}
    for job in jobs:
        bench.stop(job, why)
    assert [await bench.outcome(job) for job in jobs] == [expected, expected]
    assert (plain.read_text(), awaits.read_text()) == ("told", "cleaned up")
    assert str(number(await bench.run(isolated.pid))) in pids  # it was not killed


@pytest.mark.parametrize("task", [isolated.spin, isolated.hold_the_gil], ids=str)
async def test_code_that_does_not_listen_is_killed(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any
) -> None:
    monkeypatch.setattr(process_executor, "STOP_GRACE_SECONDS", 0.2)
    file = tmp_path / "pid"
    job = bench.start(task, file=str(file))
    pid = int(await until_written(file))
    bench.stop(job, StopReason.CANCELLED)
    assert await bench.outcome(job) == FinalOutcome("cancelled", None)
    assert not is_alive(pid)


async def test_what_succeeds_though_it_was_told_to_stop_has_succeeded(
    bench: Workbench, tmp_path: Path
) -> None:
    for why, expected in (
        (StopReason.CANCELLED, Succeeded('"done all the same"')),
        (StopReason.CLAIM_LOST, Discarded()),
    ):
        file = tmp_path / why.value
        job = bench.start(isolated.finishes_though_cancelled, file=str(file))
        await until_written(file)
        bench.stop(job, why)
        assert await bench.outcome(job) == expected


async def test_a_job_told_to_stop_before_it_has_a_process_never_runs(
    single: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    busy = single.start(isolated.until_cancelled, file=str(file))
    waits = single.start(isolated.leave, code=3)
    single.stop(waits, StopReason.CANCELLED)
    assert await single.outcome(waits) == FinalOutcome("cancelled", None)
    await until_written(file)
    single.stop(busy, StopReason.DRAINED)
    assert await single.outcome(busy) == Returned()
    assert len(single.ended) == 2


@pytest.mark.parametrize("task", [isolated.pid, isolated.awaited_pid], ids=str)
async def test_a_job_told_to_stop_while_its_process_starts_never_runs(
    single: Workbench, task: Any
) -> None:
    job = single.start(task)
    single.stop(job, StopReason.DRAINED)
    assert await single.outcome(job) == Returned()  # it did not run: the result would be Succeeded
    assert await single.run(isolated.add, a=1, b=2) == Succeeded("3")


async def test_draining_is_seen_and_answered_with_a_hand_back(
    bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    job = bench.start(isolated.until_draining, file=str(file))
    await until_written(file)
    assert isinstance(bench.executor, ProcessExecutor)
    bench.executor.drain()
    assert await bench.outcome(job) == Returned()
    assert await bench.run(isolated.until_draining, file=str(file)) == Returned()  # from its start


async def test_the_terminals_signals_do_not_end_it(single: Workbench) -> None:
    assert await single.run(isolated.signals_itself) == Succeeded('"still here"')


# Shutdown of processes


async def test_processes_nobody_needs_end(
    single: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_executor, "IDLE_SECONDS", 0.05)
    pid = number(await single.run(isolated.pid))
    await until_gone(pid, within=5)
    assert number(await single.run(isolated.pid)) != pid


async def test_closing_ends_idle_and_busy_processes(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        job = bench.start(isolated.hold_the_gil, file=str(file))
        pids = [int(await until_written(file)), number(await bench.run(isolated.pid))]
    assert [is_alive(pid) for pid in pids] == [False, False]
    assert not bench.outcomes[job].done()


async def test_an_idle_process_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "STOP_GRACE_SECONDS", 0.1)
    async with Workbench(ProcessExecutor, max_processes=1) as bench:
        pid = number(await bench.run(isolated.pid))
        os.kill(pid, signal.SIGSTOP)
    assert not is_alive(pid)


async def test_close_that_is_cut_short_leaves_no_process() -> None:
    """The worker cancels a close that takes too long."""
    async with Workbench(ProcessExecutor, max_processes=1) as bench:
        pid = number(await bench.run(isolated.pid))
        os.kill(pid, signal.SIGSTOP)
        executor = bench.executor
        assert isinstance(executor, ProcessExecutor)
        executor.close()
        closing = asyncio.create_task(executor.wait_closed())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not is_alive(pid)


async def test_a_process_that_cannot_be_started_fails_nobody(
    single: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sys.executable", "/does/not/exist")
    assert await single.run(isolated.pid) == Returned()
    assert "could be started" in caplog.text
    monkeypatch.undo()
    assert await single.run(isolated.add, a=1, b=2) == Succeeded("3")


async def test_many_jobs_end_once_each(bench: Workbench) -> None:
    """Process deaths, deadlines and cancellations at the same time."""
    for _ in range(6):
        jobs = [
            bench.start(isolated.add, a=1, b=2),
            bench.start(isolated.leave, code=1),
            bench.start(isolated.awaited_pid, 0.02, seconds=0.02),
        ]
        await asyncio.sleep(0.02)
        bench.stop(jobs[0], StopReason.CANCELLED)
        for job in jobs:
            await bench.outcome(job)
    assert len(bench.ended) == 18  # a second outcome for a job raises
