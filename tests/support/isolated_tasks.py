"""Isolated tasks, most of which crash, block or end their process."""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rota import Context, Requeue, Retry, RetryLater, Rota
from rota.errors import ClaimLost

app = Rota("postgresql://nowhere")
isolated = functools.partial(app.task, isolation="process")

served = 0
seen: ContextVar[str] = ContextVar("seen", default="nothing")


class Hopeless(Exception):
    pass


def write(file: str, text: str) -> None:
    Path(file).write_text(text)


@isolated()
def add(a: int, b: int) -> int:
    return a + b


@isolated()
def pid() -> int:
    return os.getpid()


@isolated()
async def awaited_pid(seconds: float = 0.0) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@isolated()
def nap(file: str, seconds: float) -> int:
    write(file, str(os.getpid()))
    time.sleep(seconds)
    return os.getpid()


@isolated()
def count() -> int:
    global served
    served += 1
    return served


@isolated()
def context_variable() -> str:
    before = seen.get()
    seen.set("something")
    return before


@isolated()
async def awaited_context_variable() -> str:
    before = seen.get()
    seen.set("something")
    return before


@isolated()
async def which_loop() -> int:
    return id(asyncio.get_running_loop())


# Tasks that end their process


@isolated()
def segfault() -> None:
    ctypes.string_at(0)


@isolated()
def exit_process(code: int) -> None:
    os._exit(code)


@isolated()
async def awaited_exit_process(code: int) -> None:
    os._exit(code)


@isolated()
def exhaust_memory(most: int) -> int:
    """Allocate more memory than the limit allows."""
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return len(bytearray(2 * most))


@isolated()
def close_everything() -> None:
    os.closerange(3, 256)


@isolated()
def write_garbage() -> None:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(60)


@isolated()
def fork_and_exit(file: str) -> None:
    """Fork a process that inherits the socket, and exit."""
    if os.fork() == 0:
        write(file, str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    while not (Path(file).exists() and Path(file).read_text()):
        time.sleep(0.005)
    os._exit(3)


# Tasks that never end


@isolated()
def spin(file: str) -> None:
    write(file, str(os.getpid()))
    while True:
        pass


@isolated()
def hold_the_gil(file: str) -> None:
    write(file, str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)


@isolated()
def spin_in_other_group(file: str) -> None:
    os.setpgid(0, os.getpgid(os.getppid()))
    write(file, str(os.getpid()))
    while True:
        pass


@isolated()
def wait_for_a_program(file: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as program:
        write(file, str(program.pid))


# Tasks that react to a stop request


@isolated()
def until_cancelled(ctx: Context, file: str) -> None:
    write(file, str(os.getpid()))
    while not ctx.cancelled:
        time.sleep(0.005)
    write(file, "told")
    raise RuntimeError("stopped")


@isolated()
async def awaits_for_ever(file: str) -> None:
    write(file, str(os.getpid()))
    try:
        await asyncio.Event().wait()
    finally:
        write(file, "cleaned up")


@isolated()
def until_draining(ctx: Context, file: str) -> None:
    write(file, str(os.getpid()))
    while not ctx.draining:
        time.sleep(0.005)
    raise Requeue


@isolated()
def finishes_though_cancelled(ctx: Context, file: str) -> str:
    write(file, str(os.getpid()))
    while not ctx.cancelled:
        time.sleep(0.005)
    return "done all the same"


@isolated()
def signals_itself() -> str:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(os.getpid(), number)
        time.sleep(0.02)
    return "still here"


# Use of the context


@isolated()
def about(ctx: Context) -> list[Any]:
    return [ctx.job_id, ctx.run_id, ctx.task, ctx.queue, ctx.attempt, ctx.cancelled, ctx.draining]


@isolated()
def resumed(ctx: Context) -> Any:
    return ctx.resumed_from


@isolated(retry=Retry(max_attempts=3, delay=0))
def resume_from_checkpoint(ctx: Context) -> list[Any]:
    """Exit after the checkpoint of each attempt but the last."""
    steps = [*(ctx.resumed_from or []), ctx.attempt]
    ctx.sync.checkpoint(steps)
    if ctx.attempt < 3:
        os._exit(1)
    return steps


@isolated()
async def store_checkpoint(ctx: Context, state: dict[str, int]) -> int:
    await ctx.checkpoint(state)
    return await ctx.fence()


@isolated()
def store_checkpoint_sync(ctx: Context, state: dict[str, int]) -> int:
    ctx.sync.checkpoint(state)
    return ctx.sync.fence()


@isolated()
def return_lost_claim_error(ctx: Context) -> str:
    try:
        ctx.sync.fence()
    except ClaimLost as error:
        return str(error)
    return "?"


@isolated()
async def calls(ctx: Context) -> None:
    await ctx.run(add.bind(1, 2))


@isolated()
def opens(ctx: Context) -> None:
    with ctx.sync.transaction():
        pass


# Results and errors


@isolated()
def returns(what: str) -> Any:
    return {"large": "x" * 20_000, "set": {1}, "object": object(), "nan": float("nan")}[what]


@isolated(retry=Retry(max_attempts=5, delay=2, jitter=0))
def raises() -> None:
    raise LookupError("nothing there")


@isolated(retry=Retry(max_attempts=5, non_retryable=(Hopeless, ArithmeticError)))
def raises_hopeless(kind: str) -> None:
    raise Hopeless("none") if kind == "own" else ZeroDivisionError("0")


@isolated()
async def raises_later() -> None:
    raise RetryLater(77)


@isolated()
def exits() -> None:
    sys.exit(5)


@isolated()
async def awaited_exit() -> None:
    sys.exit(5)


@isolated()
def prints(text: str) -> None:
    print(text)


# Import of the task


def loud(fn: Any) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return f"{fn(*args, **kwargs)}!"

    return wrapper


@isolated()
@loud
def inside() -> str:
    return "inside"


@loud
@isolated()
def outside() -> str:
    return "outside"


def plain() -> str:
    return "plain"


plain_task = app.task(name="plain_task", isolation="process")(plain)


class Shelf:
    @staticmethod
    @isolated(name="shelved")
    def shelved() -> str:
        return "shelved"


def replaced() -> None: ...


elsewhere = Rota("postgresql://nowhere")
replaced_task = elsewhere.task(name="replaced", isolation="process")(replaced)
replaced = None  # type: ignore[assignment]

flow = app.flow("isolated")


@flow.task(isolation="process", skip_if=lambda n: n > 1)
def part(n: int) -> int:
    return os.getpid()
