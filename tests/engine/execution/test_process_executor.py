"""Isolated tasks: if the code kills or blocks its process, the attempt fails and the worker survives."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota.engine.execution.executor import StopReason
from rota.engine.execution.process import child_process
from rota.engine.execution.process import executor as process_executor
from rota.engine.execution.process.executor import ProcessExecutor
from rota.model.outcome import Discarded, FinalOutcome, Outcome, Retried, Returned, Succeeded
from support import exits_on_import as dies_when_read
from support import isolated_tasks as isolated
from support.scale import scale
from support.workbench import Workbench, error, is_alive, until_gone, until_written


@pytest.fixture
async def bench() -> AsyncIterator[Workbench]:
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        yield bench


@pytest.fixture
async def single_process_bench() -> AsyncIterator[Workbench]:
    """Yield a bench with one process, which runs every job while it is alive."""
    async with Workbench(ProcessExecutor, max_processes=1) as bench:
        yield bench


def number(outcome: Outcome) -> int:
    assert isinstance(outcome, Succeeded), outcome
    return int(outcome.result or "")


async def test_isolated_task_runs_in_other_process_with_arguments(bench: Workbench) -> None:
    assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")
    assert number(await bench.run(isolated.pid)) != os.getpid()
    assert number(await bench.run(isolated.awaited_pid)) != os.getpid()


async def test_process_runs_one_job_after_the_other(single_process_bench: Workbench) -> None:
    pids = {
        number(await single_process_bench.run(task))
        for task in (isolated.pid, isolated.awaited_pid) * 3
    }
    assert len(pids) == 1
    assert [await single_process_bench.run(isolated.count) for _ in range(3)] == [
        Succeeded("1"),
        Succeeded("2"),
        Succeeded("3"),
    ]


async def test_process_jobs_share_event_loop_but_no_context_variables(
    single_process_bench: Workbench,
) -> None:
    loops = {number(await single_process_bench.run(isolated.which_loop)) for _ in range(3)}
    assert len(loops) == 1
    for task in (isolated.context_variable, isolated.awaited_context_variable) * 2:
        assert await single_process_bench.run(task) == Succeeded('"nothing"')


async def test_processes_run_concurrently_up_to_max_processes(
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


async def test_job_waits_briefly_for_free_process(
    single_process_bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    await single_process_bench.run(isolated.pid)  # the process has started
    first = single_process_bench.start(isolated.nap, file=str(file), seconds=0.3)
    second = single_process_bench.start(isolated.pid)
    assert await single_process_bench.outcome(first) == await single_process_bench.outcome(second)


# Processes that die


@pytest.mark.parametrize(
    ("task", "args", "how"),
    [
        (isolated.segfault, {}, "was ended by SIGSEGV"),
        (isolated.exit_process, {"code": 3}, "ended with exit code 3"),
        (isolated.exit_process, {"code": 0}, "ended with exit code 0"),
        (isolated.awaited_exit_process, {"code": 4}, "ended with exit code 4"),
        (isolated.close_everything, {}, "ended with exit code 1"),
        (isolated.write_garbage, {}, "was ended by SIGKILL"),
    ],
    ids=str,
)
async def test_process_death_fails_only_its_attempt(
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


async def test_process_killed_from_outside_reports_possible_cause(
    bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    job = bench.start(isolated.spin, file=str(file))
    os.kill(int(await until_written(file)), signal.SIGKILL)
    _, message = error(await bench.outcome(job))
    assert (
        "was ended by SIGKILL: it was killed, possibly by the system for lack of memory" in message
    )


async def test_process_killed_while_idle_costs_no_attempt(single_process_bench: Workbench) -> None:
    """The job is sent before the worker detects the death: it never began, so a new process runs it."""
    first = number(await single_process_bench.run(isolated.pid))
    os.kill(first, signal.SIGKILL)
    assert number(await single_process_bench.run(isolated.pid)) != first


@pytest.mark.parametrize("served", [False, True])
async def test_process_exiting_on_import_fails_attempt(
    single_process_bench: Workbench, served: bool
) -> None:
    """A second process is tried only if the job may not be the cause of the death."""
    if served:
        await single_process_bench.run(isolated.pid)
    kind, message = error(await single_process_bench.run(dies_when_read.never))
    assert kind == "rota.errors.ProcessLost"
    assert "ended with exit code 7 before it began" in message


async def test_process_memory_error_is_ordinary_failure(single_process_bench: Workbench) -> None:
    assert (
        error(await single_process_bench.run(isolated.exhaust_memory, most=2**31))[0]
        == "MemoryError"
    )


async def test_process_death_kills_its_forked_process(bench: Workbench, tmp_path: Path) -> None:
    """The forked process holds the socket open, and the death is detected nevertheless."""
    file = tmp_path / "pid"
    outcome = await bench.run(isolated.fork_and_exit, file=str(file))
    assert "ended with exit code 3" in error(outcome)[1]
    await until_gone(int(file.read_text()))


# Deadlines


@pytest.mark.parametrize(
    "task", [isolated.spin, isolated.hold_the_gil, isolated.spin_in_other_group], ids=str
)
async def test_process_beyond_deadline_is_killed(
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


async def test_process_beyond_deadline_is_killed_with_its_subprocess(
    bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    await bench.outcome(bench.start(isolated.wait_for_a_program, 0.3, file=str(file)))
    await until_gone(int(file.read_text()))


async def test_process_start_does_not_count_for_deadline(bench: Workbench) -> None:
    """The start of an interpreter takes longer than this deadline."""
    assert await bench.outcome(bench.start(isolated.add, 0.05, a=1, b=2)) == Succeeded("3")


async def test_process_not_ready_in_time_fails_attempt(
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
        *scale([], [(StopReason.CLAIM_LOST, Discarded())]),
    ],
)
async def test_stop_request_obeyed_by_code_keeps_process(
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
async def test_stop_request_ignored_by_code_kills_process(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any
) -> None:
    monkeypatch.setattr(process_executor, "STOP_GRACE_SECONDS", 0.2)
    file = tmp_path / "pid"
    job = bench.start(task, file=str(file))
    pid = int(await until_written(file))
    bench.stop(job, StopReason.CANCELLED)
    assert await bench.outcome(job) == FinalOutcome("cancelled", None)
    assert not is_alive(pid)


async def test_stop_request_keeps_success_unless_claim_is_lost(
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


async def test_job_stopped_before_process_is_free_never_runs(
    single_process_bench: Workbench, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    busy = single_process_bench.start(isolated.until_cancelled, file=str(file))
    waits = single_process_bench.start(isolated.exit_process, code=3)
    single_process_bench.stop(waits, StopReason.CANCELLED)
    assert await single_process_bench.outcome(waits) == FinalOutcome("cancelled", None)
    await until_written(file)
    single_process_bench.stop(busy, StopReason.DRAINED)
    assert await single_process_bench.outcome(busy) == Returned()
    assert len(single_process_bench.ended) == 2


@pytest.mark.parametrize("task", [isolated.pid, isolated.awaited_pid], ids=str)
async def test_job_stopped_during_process_start_never_runs(
    single_process_bench: Workbench, task: Any
) -> None:
    job = single_process_bench.start(task)
    single_process_bench.stop(job, StopReason.DRAINED)
    assert (
        await single_process_bench.outcome(job) == Returned()
    )  # it did not run: the result would be Succeeded
    assert await single_process_bench.run(isolated.add, a=1, b=2) == Succeeded("3")


async def test_process_drain_lets_code_requeue_its_job(bench: Workbench, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    job = bench.start(isolated.until_draining, file=str(file))
    await until_written(file)
    assert isinstance(bench.executor, ProcessExecutor)
    bench.executor.drain()
    assert await bench.outcome(job) == Returned()
    assert await bench.run(isolated.until_draining, file=str(file)) == Returned()  # from its start


async def test_process_ignores_terminal_signals(single_process_bench: Workbench) -> None:
    assert await single_process_bench.run(isolated.signals_itself) == Succeeded('"still here"')


# Shutdown of processes


async def test_process_idle_too_long_ends(
    single_process_bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_executor, "IDLE_SECONDS", 0.05)
    pid = number(await single_process_bench.run(isolated.pid))
    await until_gone(pid)
    assert number(await single_process_bench.run(isolated.pid)) != pid


async def test_executor_close_ends_idle_and_busy_processes(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        job = bench.start(isolated.hold_the_gil, file=str(file))
        pids = [int(await until_written(file)), number(await bench.run(isolated.pid))]
    assert [is_alive(pid) for pid in pids] == [False, False]
    assert not bench.outcomes[job].done()


async def test_executor_close_kills_unresponsive_idle_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "STOP_GRACE_SECONDS", 0.1)
    async with Workbench(ProcessExecutor, max_processes=1) as bench:
        pid = number(await bench.run(isolated.pid))
        os.kill(pid, signal.SIGSTOP)
    assert not is_alive(pid)


async def test_executor_close_cancelled_leaves_no_process() -> None:
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


async def test_process_start_failure_returns_job_to_queue(
    single_process_bench: Workbench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("sys.executable", "/does/not/exist")
    assert await single_process_bench.run(isolated.pid) == Returned()
    assert "could be started" in caplog.text
    monkeypatch.undo()
    assert await single_process_bench.run(isolated.add, a=1, b=2) == Succeeded("3")
