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

from engine import isolated
from engine.workbench import Workbench, claimed, error, until_gone, until_written
from rota import Rota
from rota.engine.execution.executor import StopReason
from rota.engine.execution.process.executor import ProcessExecutor
from rota.engine.execution.process.task_address import import_path_of
from rota.errors import ClaimLost, DefinitionError
from rota.model.context import Failure
from rota.model.outcome import FinalOutcome, Retried, Succeeded


class Port:
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
def port() -> Port:
    return Port()


@pytest.fixture
async def bench(port: Port) -> AsyncIterator[Workbench]:
    async with Workbench(ProcessExecutor, services_for=lambda _: port, max_processes=1) as bench:
        yield bench


# Context


async def test_a_context_knows_its_job(bench: Workbench) -> None:
    assert await bench.run(isolated.about) == Succeeded('[7,3,"about","default",1,false,false]')


async def test_a_context_knows_what_was_kept(bench: Workbench) -> None:
    task = isolated.resumed._definition
    assert await bench.outcome(
        bench.put(claimed("resumed", checkpoint='{"row":5}'), task)
    ) == Succeeded('{"row":5}')


@pytest.mark.parametrize("task", [isolated.keeps, isolated.keeps_blocking], ids=str)
async def test_checkpoint_and_fence_are_the_workers_to_do(
    bench: Workbench, port: Port, task: Any
) -> None:
    assert await bench.run(task, state={"row": 5}) == Succeeded("42")
    assert port.kept == ['{"row":5}']


async def test_the_workers_errors_arrive_as_what_they_are(bench: Workbench, port: Port) -> None:
    port.lost = True
    assert await bench.run(isolated.is_lost) == Succeeded('"it is somebody else\'s"')


@pytest.mark.parametrize(
    ("task", "what"), [(isolated.calls, "ctx.map and ctx.run"), (isolated.opens, "ctx.transaction")]
)
async def test_what_cannot_be_had_is_refused_with_a_reason(
    bench: Workbench, task: Any, what: str
) -> None:
    kind, message = error(await bench.run(task))
    assert kind == "rota.errors.RotaError"
    assert message.startswith(f'{what} cannot be used by a task with isolation="process"')


@pytest.mark.parametrize("task", [isolated.keeps, isolated.keeps_blocking], ids=str)
async def test_who_waits_for_an_answer_need_not_wait_once_told_to_stop(
    bench: Workbench, port: Port, task: Any
) -> None:
    before = await bench.run(isolated.pid)
    port.answers.clear()
    job = bench.start(task, state={})
    await port.asked.wait()
    bench.stop(job, StopReason.CANCELLED)
    assert await bench.outcome(job) == FinalOutcome("cancelled", None)
    assert await bench.run(isolated.pid) == before  # the process was not killed


# Results and errors


@pytest.mark.parametrize(
    ("what", "why"),
    [("large", "20 KiB, more than the 10 KiB"), ("object", "no form in JSON"), ("nan", "nan")],
)
async def test_what_cannot_be_stored_ends_the_job(bench: Workbench, what: str, why: str) -> None:
    outcome = await bench.run(isolated.returns, what=what)
    assert isinstance(outcome, FinalOutcome)
    kind, message = error(outcome)
    assert kind.endswith("Unstorable")
    assert why in message


async def test_errors_are_judged_by_the_tasks_own_rules(bench: Workbench) -> None:
    outcome = await bench.run(isolated.raises)
    assert isinstance(outcome, Retried)
    assert outcome.delay == 2
    document = json.loads(outcome.error)
    assert (document["type"], document["message"]) == ("LookupError", "nothing there")
    assert 'raise LookupError("nothing there")' in document["traceback"]
    assert "rota/engine" not in document["traceback"]  # Rota's frames are left out
    assert isinstance(await bench.run(isolated.raises_later), Retried)


async def test_the_traceback_of_async_code_begins_with_it(bench: Workbench) -> None:
    outcome = await bench.run(isolated.raises_later)
    assert isinstance(outcome, Retried)
    assert outcome.delay == 77
    assert json.loads(outcome.error)["traceback"].count("File ") == 1


@pytest.mark.parametrize("kind", ["own", "a subclass"])
async def test_errors_that_are_never_worth_a_retry_are_known_there(
    bench: Workbench, kind: str
) -> None:
    assert isinstance(await bench.run(isolated.raises_hopeless, kind=kind), FinalOutcome)


@pytest.mark.parametrize("task", [isolated.exits, isolated.awaited_exit], ids=str)
async def test_code_that_exits_fails_and_its_process_lives(bench: Workbench, task: Any) -> None:
    before = await bench.run(isolated.pid)
    assert error(await bench.run(task))[0] == "SystemExit"
    assert await bench.run(isolated.pid) == before


async def test_what_it_prints_is_seen_at_once(
    bench: Workbench, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    await bench.run(isolated.prints, text="from inside")
    assert "from inside" in capfd.readouterr().out  # although the process still runs


def test_it_is_the_same_on_another_loop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def working() -> None:
        async with Workbench(ProcessExecutor, max_processes=1) as bench:
            assert await bench.run(isolated.add, a=1, b=2) == Succeeded("3")
            assert "exit code 3" in error(await bench.run(isolated.leave, code=3))[1]

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
async def test_a_task_is_found_behind_what_stands_for_it(
    bench: Workbench, name: str, answer: str
) -> None:
    task = isolated.app.registry.tasks[name]
    assert await bench.run(task) == Succeeded(json.dumps(answer))


async def test_a_flows_task_and_its_condition(bench: Workbench) -> None:
    task = isolated.app.registry.tasks["isolated.part"]
    assert await bench.run(task, n=1) != Succeeded(str(os.getpid()))
    assert await bench.run(task, n=2) == FinalOutcome("skipped", None)
    assert error(await bench.run(task, n="x"))[0] == "TypeError"  # raised by the condition


def test_a_function_inside_another_is_refused_when_it_is_defined() -> None:
    def nested() -> None: ...

    for fn in (nested, lambda: None):
        with pytest.raises(DefinitionError, match="write it with def at the top of a module"):
            Rota("x").task(name="nested", isolation="process")(fn)


def test_a_function_that_is_not_under_its_name_is_refused_when_a_worker_starts() -> None:
    with pytest.raises(DefinitionError, match=r"as replaced in engine\.isolated, where it is not"):
        import_path_of(isolated.replaced_task._definition)
    import_path_of(isolated.add._definition)


SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from engine.workbench import Workbench
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
TESTS = str(Path(__file__).parents[1])


def script(folder: Path, guard: str = GUARD) -> Path:
    file = folder / "own_program.py"
    text = textwrap.dedent(SCRIPT).format(guard=guard)
    file.write_text(text if not guard else text.replace(f"{guard}\n", f"{guard} "))
    return file


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize("how", ["script", "module"])
def test_tasks_of_the_program_itself_are_found(tmp_path: Path, how: str) -> None:
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


def test_a_program_that_starts_a_worker_wherever_it_is_read_is_told_so(tmp_path: Path) -> None:
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
async def test_no_process_outlives_its_worker_however_that_dies(tmp_path: Path) -> None:
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
    await until_gone(pid, within=2)
    await worker.wait()
