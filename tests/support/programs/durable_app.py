"""Function of ten steps, and worker processes that each kill themselves at one given place.

Orders arrive on standard input as lines of JSON. For each order a process is forked after all imports; when
it has ended, the answer contains its exit status. A process counts the awaits of one code path: the job's
own code, the step writer, or the statements that record outcomes and suspensions. Each await has two
places: before the code continues, and when it suspends again. At the place in its order the process sends
itself SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg  # noqa: F401 - imported here, so that no worker has to

from rota import Context, Rota, Task
from rota.app import client  # noqa: F401
from rota.engine.durable.journal import WorkerJournal
from rota.engine.durable.pending import PendingEntries
from rota.engine.durable.step import RunningStep
from rota.engine.durable.step_writer import StepWriter
from rota.engine.execution.job_backend import JobBackend
from rota.engine.worker import worker  # noqa: F401
from rota.model.events import JobFinished
from rota.store import migrate  # noqa: F401
from rota.store.connection import ReconnectingConnection

LINES = ("own", "scribe", "exchange")
STEPS = 10
SLEEP, EARLY, LATE = 3, 5, 7
"""Steps after which the function sleeps, receives an earlier signal, and waits for a later one."""
WRITES = (1, 3, 5, 7, 9)
"""Steps that write in the job's transaction; the other steps have an effect outside of the database."""

ENDS = {"job/complete", "job/suspend"}


class KillSwitch:
    """Counter of the places on one code path; kills this process at the given place."""

    def __init__(self) -> None:
        self.line = ""
        self.place = 0
        self.come = 0

    def count(self, line: str) -> None:
        if line != self.line:
            return
        self.come += 1
        if self.come == self.place:
            os.kill(os.getpid(), signal.SIGKILL)


doom = KillSwitch()


class CountedCoroutine:
    """Coroutine that counts each of its awaits."""

    def __init__(self, line: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._line = line
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        go_on: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        while True:
            doom.count(self._line)
            try:
                waits_for = go_on(given)
            except StopIteration as end:
                doom.count(self._line)
                return end.value
            doom.count(self._line)
            try:
                given = yield waits_for
                go_on = self._coroutine.send
            except BaseException as error:
                go_on, given = self._coroutine.throw, error


def count_awaits() -> None:
    """Count the awaits of the step writer and the connection; the job's own code counts by itself."""
    write, send, block = StepWriter._send, ReconnectingConnection.send, JobBackend.run_sync

    async def counted_write(self: StepWriter, writes: Any, deadline: float) -> None:
        await CountedCoroutine("scribe", write(self, writes, deadline))

    async def counted_send(self: ReconnectingConnection, transactions: Any) -> Any:
        if any(query.statement in ENDS for each in transactions for query in each):
            return await CountedCoroutine("exchange", send(self, transactions))
        return await send(self, transactions)

    def counted_block(self: JobBackend, coroutine: Any) -> Any:
        async def counted() -> Any:
            return await CountedCoroutine("own", coroutine)

        doom.count("own")
        answer = block(self, counted())
        doom.count("own")
        return answer

    StepWriter._send = counted_write  # type: ignore[method-assign]
    ReconnectingConnection.send = counted_send  # type: ignore[method-assign]
    JobBackend.run_sync = counted_block  # type: ignore[method-assign]
    WorkerJournal.inline_wait_seconds = 0.02  # longer sleeps leave the worker


# Function


def define(app: Rota, notes: Path | None = None) -> tuple[Task[[int], list[str]], ...]:
    """Define the tasks.

    Each step returns a random value and also stores it where the step has its effect.
    """

    def note(job: int, step: int, token: str) -> str:
        assert notes is not None
        value = uuid4().hex
        doom.count("own")
        file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, f"{job} {step} {value} {token}\n".encode())
        os.close(file)
        doom.count("own")
        return value

    async def note_slowly(job: int, step: int, token: str) -> str:
        await asyncio.sleep(0)
        value = note(job, step, token)
        await asyncio.sleep(0)
        return value

    async def ten(ctx: Context, steps: int) -> list[str]:
        token = str(ctx.uuid())
        values = []
        for step in range(steps):
            fn: Any = write
            if step not in WRITES:
                fn = note if step in (2, 8) else note_slowly
            elif step == 7:
                fn = write_in_a_thread
            who = ctx if step in WRITES else ctx.job_id
            value: str = await ctx.step(f"step {step}", fn, who, step, token)
            values.append(value)
            if step == SLEEP:
                await ctx.sleep(0.1)
            if step == EARLY:
                values.append(await ctx.wait_signal("early", str))
            if step == LATE:
                values.append(await ctx.wait_signal("late", str))
        return [token, *values]

    def ten_in_a_thread(ctx: Context, steps: int) -> list[str]:
        token = str(ctx.uuid())
        values = []
        for step in range(steps):
            if step in WRITES:
                value = ctx.sync.step(f"step {step}", write_in_a_thread, ctx, step, token)
            else:
                value = ctx.sync.step(f"step {step}", note, ctx.job_id, step, token)
            values.append(value)
            if step == SLEEP:
                ctx.sync.sleep(0.1)
            if step == EARLY:
                values.append(ctx.sync.wait_signal("early", str))
            if step == LATE:
                values.append(ctx.sync.wait_signal("late", str))
        return [token, *values]

    async def counted(ctx: Context, steps: int) -> list[str]:
        answer: list[str] = await CountedCoroutine("own", ten(ctx, steps))
        return answer

    return app.task(name="ten")(counted), app.task(name="threaded")(ten_in_a_thread)


INSERT = "insert into effects (job, step, value, token) values (%s, %s, %s, %s)"


async def write(ctx: Context, step: int, token: str) -> str:
    value = uuid4().hex
    async with ctx.transaction() as connection:
        await connection.execute(INSERT, (ctx.job_id, step, value, token))
    if step == 5:  # two blocks in one step are still one transaction
        async with ctx.transaction() as connection:
            await connection.execute(INSERT, (ctx.job_id, -step, value, token))
        await asyncio.sleep(0)
    return value


def write_in_a_thread(ctx: Context, step: int, token: str) -> str:
    value = uuid4().hex
    with ctx.sync.transaction() as connection:
        connection.execute(INSERT, (ctx.job_id, step, value, token))
        if step == 5:
            doom.count("own")
            connection.execute(INSERT, (ctx.job_id, -step, value, token))
    doom.count("own")
    return value


# Mutants


def record_after_the_transaction() -> None:
    """Commit a step's writes before its record instead of together with it."""
    from rota.store import steps

    async def commit(self: RunningStep, entry: Any) -> None:
        fence = self._job_transaction
        assert fence is not None
        assert self._exit_stack is not None
        await self._exit_stack.aclose()
        await fence._database.run_with_retry(steps.record(fence.worker, [(fence.job, entry)]))

    RunningStep.commit = commit  # type: ignore[method-assign]


def do_not_wait_for_the_record() -> None:
    """Continue the job's code before its journal entries are written."""
    write = WorkerJournal.write
    writing = set()

    async def do_not_wait(self: WorkerJournal, entries: Any) -> None:
        task = asyncio.get_running_loop().create_task(write(self, entries))
        writing.add(task)
        await asyncio.sleep(0)

    WorkerJournal.write = do_not_wait  # type: ignore[method-assign]


def keep_no_values() -> None:
    """Do not persist recorded values before a step, so that a replay gets other values."""

    async def flush(self: PendingEntries) -> None:
        self.take()

    PendingEntries.flush = flush  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "the record is written after the transaction": record_after_the_transaction,
    "the record is not waited for": do_not_wait_for_the_record,
    "values are not kept before a step": keep_no_values,
}


# Processes


async def work(order: dict[str, Any]) -> None:
    """Work until the process kills itself, the job has ended, or the test is over."""
    finishes = order.get("place") is None
    # The finishing worker has never seen the killed workers alive and detects them only by their silence.
    patience = 2 if finishes else 20
    app = Rota(
        order["dsn"],
        poll_interval=0.1,
        heartbeat_interval=0.5,
        dead_after=patience,
        connections=4,
        drain_timeout=5,
    )
    define(app, Path(order["notes"]))
    queues: list[str] = order["queues"]
    if finishes:
        async with app:
            await app.work(queues=queues, concurrency=10)
        return
    ended = asyncio.Event()
    app.subscribe(lambda event: ended.set() if isinstance(event, JobFinished) else None)
    async with app, app.worker(queues=queues, concurrency=1):
        await ended.wait()


def run_worker(order: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.ERROR)
    count_awaits()
    if order.get("mutant"):
        MUTANTS[order["mutant"]]()
    if order.get("place") is not None:
        doom.line, doom.place = order["line"], order["place"]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setpgid(0, 0)
    asyncio.run(work(order))


def fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run_worker(order)
            code = 0
        except BaseException:
            logging.exception("a worker failed")
        finally:
            logging.shutdown()
            os._exit(code)
    return pid


def main() -> None:
    alive: dict[int, dict[str, Any]] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.01)
        if ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "end" in order:
                    for pid in alive:
                        os.kill(pid, signal.SIGTERM)
                else:
                    alive[fork(order)] = order
        with suppress(ChildProcessError):
            while alive and (gone := os.waitpid(-1, os.WNOHANG))[0]:
                order = alive.pop(gone[0])
                answer = {"number": order["number"], "code": os.waitstatus_to_exitcode(gone[1])}
                os.write(1, json.dumps(answer).encode() + b"\n")
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
