"""A request that starts a flow, and all its jobs, form one trace with one tree of spans."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from fastapi import FastAPI
from opentelemetry import trace

from rota import Context, Rota
from support.exported_spans import ExportedSpans, attribute_of, id_of, links_of


def etl(app: Rota) -> Any:
    """Return a diamond-shaped flow with a step, calls and a transaction."""

    @app.task
    async def resize(n: int) -> int:
        return n * 2

    inner = app.flow("inner")

    @inner.task
    async def first(n: int) -> int:
        return n

    @inner.task
    async def last(first: int) -> int:
        return first

    flow = app.flow("etl")

    @flow.task
    async def extract(ctx: Context, day: str) -> int:
        return await ctx.step("fetch", len, day)

    @flow.task
    async def clean(extract: int) -> int:
        return extract

    @flow.task
    def count(extract: int) -> int:  # runs in a thread
        return extract

    @flow.task
    async def report(ctx: Context, clean: int, count: int) -> int:
        sizes = await ctx.map([resize.bind(clean), resize.bind(count)])
        await ctx.run(inner.bind(n=1))
        async with ctx.transaction() as connection:
            await connection.execute("select 1")
        return sum(sizes)

    return flow


def make_api(flow: Any) -> FastAPI:
    api = FastAPI()

    @api.post("/etl/{day}")
    async def start(day: str) -> int:
        run = await flow.start(day=day)
        return int(run.id)

    return api


async def test_span_tree_contains_request_jobs_steps_and_child_runs(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    flow = etl(rota_app)
    transport = httpx2.ASGITransport(app=make_api(flow))
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://web") as client,
        rota_app.worker(),
    ):
        run = (await client.post("/etl/monday")).json()
        assert await rota_app.run(run).result(timeout=60) == {"report": 24}

    # FastAPI creates its own spans, of which the first is the request.
    assert [each.name for each in exported.roots()] == ["POST /etl/{day}"]
    assert len(exported.traces()) == 1
    assert exported.tree(of="start etl") == (
        "start etl\n"
        "  run etl.clean\n"
        "  run etl.count\n"
        "  run etl.extract\n"
        "    step fetch\n"
        "  run etl.report\n"
        "    map inner\n"
        "      run inner.first\n"
        "      run inner.last\n"
        "    map resize\n"
        "      run resize\n"
        "      run resize\n"
        "    transaction"
    )


async def test_attempt_span_links_to_its_predecessors(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    flow = etl(rota_app)
    async with rota_app.worker():
        await (await flow.start(day="monday")).result(timeout=60)

    assert links_of(exported.one("run etl.extract")) == set()
    assert links_of(exported.one("run etl.clean")) == {id_of(exported.one("run etl.extract"))}
    both = {id_of(exported.one("run etl.clean")), id_of(exported.one("run etl.count"))}
    assert links_of(exported.one("run etl.report")) == both
    assert links_of(exported.one("map resize")) == {
        id_of(each) for each in exported.named("run resize")
    }
    # The call of a flow links to the flow's last job.
    assert links_of(exported.one("map inner")) == {id_of(exported.one("run inner.last"))}


async def test_attempt_span_links_to_predecessor_completed_in_transaction(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    flow = rota_app.flow("books")

    @flow.task
    async def book(ctx: Context) -> Any:
        async with ctx.transaction():
            ctx.complete(3)

    @flow.task
    def ship(ctx: Context) -> Any:
        with ctx.sync.transaction():
            ctx.complete(4)

    @flow.task
    async def close(book: int, ship: int) -> int:
        return book + ship

    async with rota_app.worker():
        run = await flow.start()
        assert await run.result(timeout=60) == {"close": 7}

    before = {id_of(exported.one("run books.book")), id_of(exported.one("run books.ship"))}
    assert links_of(exported.one("run books.close")) == before
    assert attribute_of(exported.one("run books.book"), "rota.outcome") == "succeeded"
    assert {each.parent.span_id for each in exported.named("transaction") if each.parent} == before


async def test_span_of_user_code_is_below_the_current_rota_span(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    """Instrumented drivers create such spans in coroutines, threads, steps and transactions."""
    tracer = trace.get_tracer("driver")

    def select(name: str) -> None:
        tracer.start_span(name).end()

    async def awaited() -> None:
        await asyncio.to_thread(select, "in a thread of a step")

    @rota_app.task
    async def work(ctx: Context) -> None:
        select("in a coroutine")
        await ctx.step("plain", select, "in a plain step")
        await ctx.step("async", awaited)
        async with ctx.transaction():
            select("in a transaction")

    @rota_app.task
    def toil(ctx: Context) -> None:
        select("in a thread")
        ctx.sync.step("blocking", select, "in a step of a thread")
        with ctx.sync.transaction():
            select("in its transaction")

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
        await (await toil.start()).result(timeout=60)

    assert exported.tree() == (
        "start toil\n"
        "  run toil\n"
        "    in a thread\n"
        "    step blocking\n"
        "      in a step of a thread\n"
        "    transaction\n"
        "      in its transaction\n"
        "start work\n"
        "  run work\n"
        "    in a coroutine\n"
        "    step async\n"
        "      in a thread of a step\n"
        "    step plain\n"
        "      in a plain step\n"
        "    transaction\n"
        "      in a transaction"
    )


async def test_span_tree_consecutive_jobs_have_separate_traces(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def one(n: int) -> int:
        return trace.get_current_span().get_span_context().trace_id

    async with rota_app.worker(concurrency=1):
        runs = [await one.start(n) for n in range(3)]
        traces = [await run.result(timeout=60) for run in runs]

    assert len(set(traces)) == 3
    assert exported.tree() == "\n".join(["start one\n  run one"] * 3)
