"""Every kind of start stores the current trace context."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind

from rota import Context, Rota, Run
from rota.app.client import MIN_COPY_JOBS
from rota.engine.telemetry import span_names
from rota.testing import Harness
from support.exported_spans import ExportedSpans, attribute_of, id_of, trace_of
from support.queries import fetch

TRACES = "select trace from rota.jobs order by id"


@pytest.mark.parametrize("many", [3, MIN_COPY_JOBS])
async def test_start_many_jobs_share_one_start_span(
    rota_app: Rota, rota_dsn: str, exported: ExportedSpans, many: int
) -> None:
    @rota_app.task
    async def work(n: str) -> None: ...

    with trace.get_tracer("tests").start_as_current_span("request"):
        await rota_app.start_many([work.bind("back\\slash") for _ in range(many)])

    start = exported.one("start work")
    assert exported.tree() == "request\n  start work"
    assert start.kind is SpanKind.PRODUCER
    assert attribute_of(start, span_names.COUNT) == many
    assert start.context is not None
    place = f"00-{trace_of(start):032x}-{id_of(start):016x}-{start.context.trace_flags:02x}"
    assert await fetch(rota_dsn, TRACES) == [(place,)] * many
    async with rota_app.worker() as worker:
        run = await work.options(key="a", delay=0).start("one more")
        await run.result(timeout=60)
        await worker.session.slots.wait_empty()
    assert len(exported.named("run work")) == many + 1


async def test_start_many_flows_share_one_start_span(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    flow = rota_app.flow("pair")

    @flow.task
    async def one(n: int) -> int:
        return n

    @flow.task
    async def two(one: int) -> int:
        return one

    async with rota_app.worker():
        for run in await rota_app.start_many([flow.bind(n=1), flow.bind(n=2)]):
            await run.result(timeout=60)

    both = "\n  run pair.one" * 2 + "\n  run pair.two" * 2
    assert exported.tree() == f"start pair{both}"
    assert attribute_of(exported.one("start pair"), span_names.FLOW) == "pair"


async def test_start_on_user_connection_is_in_the_current_trace(
    rota_app: Rota, rota_dsn: str, exported: ExportedSpans
) -> None:
    flow = rota_app.flow("single")

    @rota_app.task
    async def work(n: int) -> None: ...

    @flow.task
    async def only() -> None: ...

    with tracer_span("request"):
        async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
            runs: list[Run[Any]] = [
                await work.options(on=connection).start(1),
                await work.options(on=connection, key="k").start(2),
                await flow.options(on=connection).start(),
            ]
        with psycopg.connect(rota_dsn) as blocking:
            work.sync.options(on=blocking).start(3)
            flow.sync.options(on=blocking).start()
    async with rota_app.worker() as worker:
        for run in runs:
            await run.result(timeout=60)
        await worker.session.slots.wait_empty()

    assert [each.name for each in exported.roots()] == ["request"]
    assert len(exported.traces()) == 1
    assert [len(exported.named(name)) for name in ("start work", "start single")] == [3, 2]


async def test_start_sync_is_in_the_trace_of_its_thread(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def work(n: int) -> None: ...

    def start() -> None:
        with tracer_span("script"):
            work.sync.start(1)
        rota_app.close_sync()

    await asyncio.to_thread(start)

    assert exported.tree() == "script\n  start work"


async def test_start_by_a_job_is_below_the_span_of_the_job(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def child() -> None: ...

    @rota_app.task
    async def parent(ctx: Context) -> None:
        run = await child.start()
        await run.result(timeout=60)

    async with rota_app.worker():
        await (await parent.start()).result(timeout=60)

    assert exported.tree() == "start parent\n  run parent\n    start child\n      run child"


async def test_start_with_used_key_keeps_job_in_the_first_trace(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def work() -> None: ...

    await work.options(key="a").start()
    await work.options(key="a").start()
    async with rota_app.worker() as worker:
        await worker.session.slots.wait_empty()
        await (await work.options(key="a").start()).result(timeout=60)

    first, *others = exported.named("start work")
    assert [attribute_of(each, span_names.CREATED) for each in (first, *others)] == [
        True,
        False,
        False,
    ]
    run = exported.one("run work")
    assert run.parent is not None
    assert run.parent.span_id == id_of(first)


async def test_start_from_sql_accepts_only_a_valid_traceparent(
    rota_app: Rota, rota_dsn: str, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def work() -> None: ...

    place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
        await connection.execute("select rota.start('work', trace => %s)", [place])
    async with await psycopg.AsyncConnection.connect(rota_dsn) as connection:
        with pytest.raises(psycopg.errors.Error, match="must be a W3C traceparent"):
            await connection.execute("select rota.start('work', trace => 'here')")
    async with rota_app.worker():
        await (await work.start()).result(timeout=60)

    traces = {f"{trace_of(each):032x}" for each in exported.named("run work")}
    assert place.split("-")[1] in traces
    assert len(traces) == 2


async def test_start_in_unsampled_trace_is_propagated_without_spans(
    rota_app: Rota, rota_dsn: str, exported: ExportedSpans
) -> None:
    flow = rota_app.flow("pair")
    traces: list[int] = []

    @flow.task
    async def one() -> int:
        traces.append(trace.get_current_span().get_span_context().trace_id)
        return 1

    @flow.task
    async def two(one: int) -> int:
        traces.append(trace.get_current_span().get_span_context().trace_id)
        return 1

    unwanted = trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(0))
    async with rota_app.worker():
        with trace.use_span(trace.NonRecordingSpan(unwanted)):
            run = await flow.start()
        await run.result(timeout=60)

    assert exported.spans == ()
    assert traces == [7, 7]
    assert await fetch(rota_dsn, "select job from rota.trace_links") == []


async def test_schedule_ticks_are_each_a_separate_trace(
    rota_harness: Harness, exported: ExportedSpans
) -> None:
    app = rota_harness.app
    flow = app.flow("nightly")

    @app.schedule(every=60, catch_up="all")
    @app.task
    async def tick(ctx: Context) -> None: ...

    @flow.task
    async def one() -> int:
        return 1

    @flow.task
    async def two(one: int) -> int:
        return one

    await app.schedules.create("flow", flow, every=3600)
    await rota_harness.run_until_idle()
    with tracer_span("what the worker's program is in"):
        await rota_harness.clock.advance(timedelta(minutes=2))
        await rota_harness.run_until_idle()
        await rota_harness.clock.advance(timedelta(hours=1))
        await rota_harness.run_until_idle()
    ticks, nights = exported.named("start tick"), exported.named("start nightly")

    assert len(ticks) >= 2
    assert len({trace_of(each) for each in ticks}) == len(ticks)
    assert {attribute_of(each, span_names.SCHEDULE) for each in ticks} == {"tick"}
    assert len({trace_of(each) for each in exported.named("run tick")}) == len(
        exported.named("run tick")
    )
    [night] = nights
    assert {trace_of(each) for each in exported.named("run nightly.one")} == {trace_of(night)}
    assert {trace_of(each) for each in exported.named("run nightly.two")} == {trace_of(night)}
    assert night.parent is None


async def test_trigger_backfill_and_fork_are_in_the_trace_of_the_caller(
    rota_harness: Harness, exported: ExportedSpans
) -> None:
    app = rota_harness.app
    await rota_harness.clock.set(datetime(2026, 3, 1, 12, tzinfo=UTC))

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step("one", int, 1)

    flow = app.flow("pair")

    @flow.task
    async def one() -> int:
        return 1

    await app.schedules.create("daily", work, cron="0 7 * * *")
    done = await work.start()
    pair = await flow.start()
    await rota_harness.run_until_idle()
    with tracer_span("somebody"):
        await app.schedules.trigger("daily")
        begin = datetime(2026, 2, 1, tzinfo=UTC)
        await app.schedules.backfill("daily", begin, begin + timedelta(days=2))
        await app.fork(done, from_step="one")
        await app.fork(pair, from_=one)
    await rota_harness.run_until_idle()

    assert exported.tree(of="somebody") == (
        "somebody\n"
        "  start daily\n"
        "    run work\n"
        "      step one\n"
        "  start daily\n"
        "    run work\n"
        "      step one\n"
        "    run work\n"
        "      step one\n"
        "  start pair\n"
        "    run pair.one\n"
        "  start work\n"
        "    run work\n"
        "      step one"
    )


def tracer_span(name: str) -> AbstractContextManager[trace.Span]:
    return trace.get_tracer("tests").start_as_current_span(name)
