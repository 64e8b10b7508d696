"""The public API as users write it: checked by mypy, never run.

`assert_type` states the type that an editor shows. A line that must not type-check carries an ignore, and
mypy reports ignores that are not needed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_type

from psycopg import AsyncConnection, Connection

from rota import (
    BoundTask,
    Context,
    LostJob,
    Requeue,
    Retry,
    RetryLater,
    Rota,
    Run,
    TaskTimeout,
    WorkerLost,
)
from rota.app.sync import SyncRun
from rota.model.events import JobFinished
from rota.testing import Harness, run_until_idle

app = Rota()


@app.task
async def resize(path: str, width: int = 100) -> str:
    return f"{path}:{width}"


@app.task(
    queue="images", priority=5, retry=Retry(max_attempts=5, delay=timedelta(seconds=2)), timeout=30
)
async def crop(ctx: Context, path: str, *, left: int = 0) -> list[int]:
    if ctx.attempt < 2 and not ctx.cancelled:
        raise RetryLater(timedelta(minutes=1))
    return [left, len(path)]


@app.task
def plain(number: int) -> float:
    return number / 2


@app.task(name="with.context")
def plain_with_context(ctx: Context, number: int) -> float | None:
    return None if ctx.cancelled else number / 2


@app.task
async def nothing() -> None: ...


def decide(loss: LostJob) -> Literal["retry", "fail"]:
    return "retry" if loss.crashes < 2 else "fail"


async def decide_later(loss: LostJob) -> Literal["cancel"]:
    return "cancel"


@app.task(isolation="process", timeout=5, retry=Retry(non_retryable=(WorkerLost, TaskTimeout)))
def in_a_process(number: int) -> int:
    return number


@app.task(on_worker_lost=decide, max_crashes=1, visibility_timeout=timedelta(minutes=1))
async def held(ctx: Context) -> int:
    if ctx.draining:
        raise Requeue
    return 1


app.task(on_worker_lost=decide_later)(nothing.fn)
app.task(on_worker_lost="cancel")(nothing.fn)
app.task(on_worker_lost="ignore")(nothing.fn)  # type: ignore[call-overload]
app.task(isolation="thread")(nothing.fn)  # type: ignore[call-overload]
app.task(retries=3)(nothing.fn)  # type: ignore[call-overload]
app.action("report", isolation="process")  # type: ignore[call-arg]
app.schedule("0 7 * * *", overlap="maybe")  # type: ignore[arg-type]
app.schedule("0 7 * * *", tenant="a")  # type: ignore[call-arg]


async def starting() -> None:
    assert_type(await resize.start("a.png"), Run[str])
    assert_type(await resize.start(path="a.png", width=3), Run[str])
    assert_type(await crop.start("a.png", left=2), Run[list[int]])
    assert_type(await plain.start(3), Run[float])
    assert_type(await plain_with_context.start(number=3), Run[float | None])
    assert_type(await nothing.start(), Run[None])


async def starting_wrongly() -> None:
    await resize.start()  # type: ignore[call-arg]
    await resize.start(3)  # type: ignore[arg-type]
    await resize.start("a.png", height=3)  # type: ignore[call-arg]
    await crop.start("a.png", 2)  # type: ignore[call-arg]
    await crop.start(Context(1, 1, "crop", "images", 1), "a.png")  # type: ignore[arg-type, call-arg]
    resize.bind(width=3)  # type: ignore[call-arg]
    resize.sync.start(path=3)  # type: ignore[arg-type]


async def results() -> None:
    run = await resize.start("a.png")
    assert_type(run.id, int)
    assert_type(run.created, bool)
    assert_type(await run.result(), str)
    assert_type(await run.result(timeout=10), str)
    assert_type(await run.result(timeout=timedelta(seconds=10)), str)
    assert_type(await run.status(), str)
    assert_type(await run.cancel(), str)
    await run.retry()
    assert_type(await (await crop.start("a.png")).result(), list[int])
    assert_type(await (await plain.start(1)).result(), float)
    assert_type(app.run(42), Run[Any])


async def start_with_options(async_connection: AsyncConnection, connection: Connection) -> None:
    later = resize.options(
        key="b", unique=timedelta(hours=1), delay=timedelta(minutes=1), priority=5
    )
    assert_type(await later.start(path="b.png"), Run[str])
    assert_type(await resize.options(at=datetime(2040, 1, 1, tzinfo=UTC)).start("c"), Run[str])
    assert_type(await resize.options(key="d", unique="open", expires=60).start("d"), Run[str])
    assert_type(await crop.options(on=async_connection, timeout=3).start("e"), Run[list[int]])
    assert_type(crop.sync.options(on=connection).start("e"), SyncRun[list[int]])
    resize.options(unique="sometimes")  # type: ignore[arg-type]
    resize.options(when=3)  # type: ignore[call-arg]
    resize.sync.options(when=3)  # type: ignore[call-arg]
    await app.schedules.create("daily", resize, evry=60)  # type: ignore[call-arg]
    await app.schedules.update("daily", evry=60)  # type: ignore[call-arg]


async def many() -> None:
    assert_type(resize.bind(path="a"), BoundTask[str])
    assert_type(crop.bind("a"), BoundTask[list[int]])
    assert_type(await app.start_many([resize.bind(path=path) for path in "abc"]), list[Run[str]])


def blocking() -> None:
    run = resize.sync.start(path="d.png")
    assert_type(run, SyncRun[str])
    assert_type(run.result(timeout=10), str)
    assert_type(run.status(), str)
    assert_type(run.cancel(), str)
    assert_type(crop.sync.start("a", left=1).result(), list[int])
    assert_type(plain.sync.start(1).result(), float)
    assert_type(app.sync.start_many([plain.bind(1)]), list[SyncRun[float]])
    assert_type(app.run(7).sync, SyncRun[Any])


async def registering() -> None:
    assert_type(resize.name, str)

    async def local(a: int) -> str:
        return str(a)

    assert_type(await app.task(local).start(1), Run[str])
    assert_type(await app.task(name="other")(local).start(a=1), Run[str])
    await app.task(name="third")(local).start("1")  # type: ignore[arg-type]


async def working() -> None:
    async with app.worker(queues=["images"], concurrency=10) as worker:
        assert_type(worker.id, int)
    await app.work(concurrency=100)
    assert_type(await app.migrate(), list[str])
    await app.close()


async def testing(dsn: str) -> None:
    async with Harness(app, dsn) as harness:
        await harness.run_until_idle(timeout=3)
        assert_type(await harness.wait_for_event(JobFinished, job=3), JobFinished)
        assert_type(await harness.clock.advance(timedelta(days=7)), datetime)
    await run_until_idle(app, queues=["images"])
