"""Flows and bound tasks as users write them: checked by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from psycopg import AsyncConnection, Connection

from rota import BoundFlow, Context, Failure, Flow, FlowTask, Retry, Rota, Run, RunFailed
from rota.app.sync import SyncRun

app = Rota()
etl = app.flow("etl")
assert_type(etl, Flow)


@app.task
async def resize(path: str, width: int = 100) -> str:
    return f"{path}:{width}"


@app.task
def measure(path: str) -> int:
    return len(path)


@etl.task
async def extract(day: str) -> list[str]:
    return [day]


@etl.task(after=[extract, "other"], when="none_failed", skip_if=lambda day: day == "sunday")
def clean(extract: list[str]) -> int:
    return len(extract)


@etl.task(name="other", queue="images", priority=3, retry=Retry(max_attempts=2), timeout=30)
async def another(ctx: Context, day: str) -> None: ...


@etl.on_failure
async def notify_failure(ctx: Context) -> None:
    assert_type(await ctx.failures(), list[Failure])


async def starting() -> None:
    assert_type(await etl.start(day="monday"), Run[dict[str, Any]])
    assert_type(await (await etl.start(day="monday")).result(timeout=3), dict[str, Any])
    assert_type(etl.bind(day="monday"), BoundFlow)
    assert_type(
        await app.start_many([etl.bind(day=day) for day in ("monday", "tuesday")]),
        list[Run[dict[str, Any]]],
    )
    assert_type(await app.start_many([resize.bind("a")]), list[Run[str]])


async def start_with_options(async_connection: AsyncConnection, connection: Connection) -> None:
    assert_type(etl.options(key="k", unique=timedelta(hours=1), delay=3, priority=5), Flow)
    assert_type(
        await etl.options(on=async_connection, expires=60).start(day="monday"), Run[dict[str, Any]]
    )
    blocking = etl.sync.options(on=connection).start(day="monday")
    assert_type(blocking, SyncRun[dict[str, Any]])
    assert_type(blocking.result(), dict[str, Any])
    etl.options(unique="sometimes")  # type: ignore[arg-type]
    etl.options(timeout=3)  # type: ignore[call-arg]


async def forking(run: Run[dict[str, Any]], task: FlowTask) -> None:
    assert_type(await app.fork(run, from_="clean"), Run[dict[str, Any]])
    assert_type(await app.fork(run, from_=task), Run[dict[str, Any]])
    await app.fork(run, task)  # type: ignore[call-overload]


@app.task
async def gallery(ctx: Context, paths: list[str]) -> int:
    assert_type(await ctx.map(resize.bind(path) for path in paths), list[str])
    assert_type(await ctx.map([measure.bind(path) for path in paths], concurrency=3), list[int])
    assert_type(
        await ctx.map([measure.bind(path) for path in paths], return_exceptions=True),
        list[int | RunFailed],
    )
    assert_type(await ctx.run(resize.bind("a")), str)
    assert_type(await ctx.run(etl.bind(day="monday")), dict[str, Any])
    await ctx.map([3])  # type: ignore[arg-type]
    await ctx.map([resize.bind("a")], return_exceptions="ignore")  # type: ignore[call-overload]
    return 1


@app.task
def plain(ctx: Context) -> int:
    assert_type(ctx.sync.run(measure.bind("a")), int)
    assert_type(ctx.sync.failures(), list[Failure])
    return sum(ctx.sync.map([measure.bind("a")]))


async def defining_wrongly() -> None:
    etl.task(when="sometimes")  # type: ignore[call-overload]
    etl.task(after=[extract], retries=3)  # type: ignore[call-overload]
    etl.on_failure(after=[extract])  # type: ignore[call-overload]
