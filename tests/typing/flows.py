"""Flows and calls as they are meant to be written: checked by mypy, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

from psycopg import AsyncConnection, Connection

from rota import Context, Failure, Flow, FlowCall, FlowTask, Retry, Rota, Run, RunFailed
from rota.app.blocking import BlockingRun

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


@etl.task(name="other", queue="images", priority=3, retry=Retry(attempts=2), timeout=30)
async def another(ctx: Context, day: str) -> None: ...


@etl.on_failure
async def tell(ctx: Context) -> None:
    assert_type(await ctx.failures(), list[Failure])


async def starting() -> None:
    assert_type(await etl.start(day="monday"), Run[dict[str, Any]])
    assert_type(await (await etl.start(day="monday")).result(timeout=3), dict[str, Any])
    assert_type(etl.call(day="monday"), FlowCall)
    assert_type(
        await app.start_many([etl.call(day=day) for day in ("monday", "tuesday")]),
        list[Run[dict[str, Any]]],
    )
    assert_type(await app.start_many([resize.call("a")]), list[Run[str]])


async def in_other_ways(async_connection: AsyncConnection, connection: Connection) -> None:
    assert_type(etl.using(key="k", unique=timedelta(hours=1), delay=3, priority=5), Flow)
    assert_type(
        await etl.using(on=async_connection, expires=60).start(day="monday"), Run[dict[str, Any]]
    )
    blocking = etl.blocking.using(on=connection).start(day="monday")
    assert_type(blocking, BlockingRun[dict[str, Any]])
    assert_type(blocking.result(), dict[str, Any])
    etl.using(unique="sometimes")  # type: ignore[arg-type]
    etl.using(timeout=3)  # type: ignore[call-arg]


async def forking(run: Run[dict[str, Any]], task: FlowTask) -> None:
    assert_type(await app.fork(run, from_="clean"), Run[dict[str, Any]])
    assert_type(await app.fork(run, from_=task), Run[dict[str, Any]])
    await app.fork(run, task)  # type: ignore[call-overload]


@app.task
async def gallery(ctx: Context, paths: list[str]) -> int:
    assert_type(await ctx.map(resize.call(path) for path in paths), list[str])
    assert_type(await ctx.map([measure.call(path) for path in paths], limit=3), list[int])
    assert_type(
        await ctx.map([measure.call(path) for path in paths], failures="collect"),
        list[int | RunFailed],
    )
    assert_type(await ctx.run(resize.call("a")), str)
    assert_type(await ctx.run(etl.call(day="monday")), dict[str, Any])
    await ctx.map([3])  # type: ignore[arg-type]
    await ctx.map([resize.call("a")], failures="ignore")  # type: ignore[call-overload]
    return 1


@app.task
def plain(ctx: Context) -> int:
    assert_type(ctx.blocking.run(measure.call("a")), int)
    assert_type(ctx.blocking.failures(), list[Failure])
    return sum(ctx.blocking.map([measure.call("a")]))


async def defining_wrongly() -> None:
    etl.task(when="sometimes")  # type: ignore[call-overload]
    etl.on_failure(after=[extract])  # type: ignore[call-overload]
