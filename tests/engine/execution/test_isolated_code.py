"""Isolated tasks: context, results, errors, and import of their code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.engine.execution.executor import StopReason
from rota.engine.execution.process.executor import ProcessExecutor
from rota.engine.execution.process.task_address import import_path_of
from rota.errors import ClaimLost, DefinitionError
from rota.model.context import Failure
from rota.model.outcome import FinalOutcome, Retried, Succeeded
from support import isolated_tasks as isolated
from support.places import TESTS
from support.workbench import Workbench, claimed, error, until_gone, until_written


class FakeBackend:
    """Stand-in for the worker's job services that stores checkpoints in memory."""

    draining = False

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.lost = False
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.answers.set()

    async def checkpoint(self, state: str) -> None:
        self.asked.set()
        await self.answers.wait()
        self.kept.append(state)

    async def fence(self) -> int:
        if self.lost:
            raise ClaimLost("it is somebody else's")
        return 42

    async def failures(self) -> list[Failure]:
        return [Failure(1, "extract", "ValueError", "no")]


@pytest.fixture
def job_backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
async def bench(job_backend: FakeBackend) -> AsyncIterator[Workbench]:
    async with Workbench(
        ProcessExecutor, backend_for=lambda _: job_backend, max_processes=1
    ) as bench:
        yield bench


# Context


async def test_isolated_context_has_job_properties(bench: Workbench) -> None:
    assert await bench.run(isolated.about) == Succeeded('[7,3,"about","default",1,false,false]')


async def test_isolated_context_has_stored_checkpoint(bench: Workbench) -> None:
    task = isolated.resumed._definition
    assert await bench.outcome(
        bench.put(claimed("resumed", checkpoint='{"row":5}'), task)
    ) == Succeeded('{"row":5}')


@pytest.mark.parametrize(
    "task", [isolated.store_checkpoint, isolated.store_checkpoint_sync], ids=str
)
async def test_isolated_checkpoint_and_fence_are_done_by_worker(
    bench: Workbench, job_backend: FakeBackend, task: Any
) -> None:
    assert await bench.run(task, state={"row": 5}) == Succeeded("42")
    assert job_backend.kept == ['{"row":5}']


async def test_isolated_fence_raises_claim_lost_of_worker(
    bench: Workbench, job_backend: FakeBackend
) -> None:
    job_backend.lost = True
    assert await bench.run(isolated.return_lost_claim_error) == Succeeded(
        '"it is somebody else\'s"'
    )


@pytest.mark.parametrize(
    ("task", "what"), [(isolated.calls, "ctx.map and ctx.run"), (isolated.opens, "ctx.transaction")]
)
async def test_isolated_unsupported_call_is_refused_with_reason(
    bench: Workbench, task: Any, what: str
) -> None:
    kind, message = error(await bench.run(task))
    assert kind == "rota.errors.RotaError"
    assert message.startswith(f'{what} cannot be used by a task with isolation="process"')


@pytest.mark.parametrize(
    "task", [isolated.store_checkpoint, isolated.store_checkpoint_sync], ids=str
)
async def test_isolated_stop_during_worker_request_ends_job_not_process(
    bench: Workbench, job_backend: FakeBackend, task: Any
) -> None:
    before = await bench.run(isolated.pid)
    job_backend.answers.clear()
    job = bench.start(task, state={})
    await job_backend.asked.wait()
    bench.stop(job, StopReason.CANCELLED)
    assert await bench.outcome(job) == FinalOutcome("cancelled", None)
    assert await bench.run(isolated.pid) == before  # the process was not killed


# Results and errors


@pytest.mark.parametrize(
    ("what", "why"),
    [("large", "20 KiB, more than the 10 KiB"), ("object", "no form in JSON"), ("nan", "nan")],
)
async def test_isolated_result_not_storable_ends_job(bench: Workbench, what: str, why: str) -> None:
    outcome = await bench.run(isolated.returns, what=what)
    assert isinstance(outcome, FinalOutcome)
    kind, message = error(outcome)
    assert kind.endswith("Unstorable")
    assert why in message


async def test_isolated_error_follows_retry_policy_of_task(bench: Workbench) -> None:
    outcome = await bench.run(isolated.raises)
    assert isinstance(outcome, Retried)
    assert outcome.delay == 2
    document = json.loads(outcome.error)
    assert (document["type"], document["message"]) == ("LookupError", "nothing there")
    assert 'raise LookupError("nothing there")' in document["traceback"]
    assert "rota/engine" not in document["traceback"]  # Rota's frames are left out
    assert isinstance(await bench.run(isolated.raises_later), Retried)


async def test_isolated_async_traceback_begins_with_user_code(bench: Workbench) -> None:
    outcome = await bench.run(isolated.raises_later)
    assert isinstance(outcome, Retried)
    assert outcome.delay == 77
    assert json.loads(outcome.error)["traceback"].count("File ") == 1


@pytest.mark.parametrize("kind", ["own", "a subclass"])
async def test_isolated_non_retryable_error_ends_job(bench: Workbench, kind: str) -> None:
    assert isinstance(await bench.run(isolated.raises_hopeless, kind=kind), FinalOutcome)


@pytest.mark.parametrize("task", [isolated.exits, isolated.awaited_exit], ids=str)
async def test_isolated_system_exit_fails_job_and_keeps_process(
    bench: Workbench, task: Any
) -> None:
    before = await bench.run(isolated.pid)
    assert error(await bench.run(task))[0] == "SystemExit"
    assert await bench.run(isolated.pid) == before


async def test_isolated_print_is_flushed_at_once(
    bench: Workbench, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    await bench.run(isolated.prints, text="from inside")
    assert "from inside" in capfd.readouterr().out  # although the process still runs


def test_isolated_task_under_uvloop_reports_result_and_exit_code() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def working() -> None:
        async with Workbench(ProcessExecutor, max_processes=1) as bench:
            assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")
            assert "exit code 3" in error(await bench.run(isolated.exit_process, code=3))[1]

    uvloop.run(working())


# Import of the task


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("inside", "inside!"),
        ("outside", "outside"),
        ("plain_task", "plain"),
        ("shelved", "shelved"),
    ],
)
async def test_isolated_task_wrapped_or_in_class_is_imported(
    bench: Workbench, name: str, answer: str
) -> None:
    task = isolated.app.registry.tasks[name]
    assert await bench.run(task) == Succeeded(json.dumps(answer))


async def test_isolated_flow_task_evaluates_skip_if(bench: Workbench) -> None:
    task = isolated.app.registry.tasks["isolated.part"]
    assert await bench.run(task, n=1) != Succeeded(str(os.getpid()))
    assert await bench.run(task, n=2) == FinalOutcome("skipped", None)
    assert error(await bench.run(task, n="x"))[0] == "TypeError"  # raised by the condition


def test_isolated_nested_function_is_refused_at_definition() -> None:
    def nested() -> None: ...

    for fn in (nested, lambda: None):
        with pytest.raises(DefinitionError, match="write it with def at the top of a module"):
            Rota("x").task(name="nested", isolation="process")(fn)


def test_isolated_function_replaced_in_module_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"as replaced in support\.isolated_tasks, where it is not"
    ):
        import_path_of(isolated.replaced_task._definition)
    import_path_of(isolated.add._definition)


SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from support.workbench import Workbench
from rota import Rota
from rota.engine.execution.process.executor import ProcessExecutor

app = Rota("postgresql://nowhere")
Path(sys.argv[1]).open("a").write(__name__ + " ")

class Sad(Exception):
    pass

@app.task(isolation="process")
def where() -> str:
    return __name__

@app.task(isolation="process")
def sad() -> None:
    raise Sad("so sad")

@app.task(isolation="process")
def hang(file: str) -> None:
    import ctypes
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)

async def main():
    async with Workbench(ProcessExecutor, max_processes=2) as bench:
        print(await bench.run(where))
        print(await bench.run(sad))
        if len(sys.argv) > 2:
            await bench.run(hang, file=sys.argv[2])

{guard}
asyncio.run(main())
"""
GUARD = 'if __name__ == "__main__":'


def script(folder: Path, guard: str = GUARD) -> Path:
    file = folder / "own_program.py"
    text = textwrap.dedent(SCRIPT).format(guard=guard)
    file.write_text(text if not guard else text.replace(f"{guard}\n", f"{guard} "))
    return file


def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    }


@pytest.mark.parametrize("how", ["script", "module"])
def test_isolated_task_of_main_program_is_imported(tmp_path: Path, how: str) -> None:
    file = script(tmp_path)
    named = tmp_path / "named"
    done = subprocess.run(
        [sys.executable, *([file] if how == "script" else ["-m", "own_program"]), named],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert """Succeeded(result='"__rota_main__"')""" in done.stdout
    assert '{"type":"Sad","message":"so sad"' in done.stdout
    assert named.read_text().split() == ["__main__", "__rota_main__"]


def test_isolated_main_program_without_guard_is_refused(tmp_path: Path) -> None:
    file = script(tmp_path, guard="")
    file.write_text(
        file.read_text().replace(
            "async with Workbench(",
            "from rota.engine.execution.pool import ExecutorPool\n"
            "    if __name__ != '__main__': ExecutorPool(print, 1, 1)\n    async with Workbench(",
        )
    )
    done = subprocess.run(
        [sys.executable, file, tmp_path / "named"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "start the worker under `if __name__ == " in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
async def test_isolated_process_ends_when_worker_is_killed(tmp_path: Path) -> None:
    """The isolated code is in a C call and never returns to Python."""
    file = tmp_path / "pid"
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        script(tmp_path),
        tmp_path / "named",
        file,
        env=environment(),
        stdout=subprocess.DEVNULL,
    )
    pid = int(await until_written(file))
    worker.send_signal(signal.SIGKILL)
    await until_gone(pid)
    await worker.wait()
