"""Spans of attempts: one for each, with its outcome and without payloads."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from rota import Context, Retry, Rota, RunCancelled, RunFailed
from rota.engine.telemetry import span_names
from rota.model.retention import Retention
from rota.store import retention
from rota.testing import Harness
from support.exported_spans import ExportedSpans, attribute_of, id_of, trace_of
from support.places import ROOT
from support.queries import fetch

AGAIN = Retry(max_attempts=2, delay=0)
SECRET = "hunter2"


async def test_attempt_spans_share_the_trace_of_the_start(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task(queue="images", retry=AGAIN)
    async def resize(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("no such thing")

    async with rota_app.worker() as worker:
        run = await resize.start()
        await run.result(timeout=60)
        number = worker.id

    assert exported.tree() == "start resize\n  run resize\n  run resize"
    start, first, second = exported.one("start resize"), *exported.named("run resize")
    assert (start.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(first.attributes or {}) == {
        span_names.SYSTEM: "rota",
        span_names.OPERATION: "run",
        span_names.OPERATION_TYPE: "process",
        span_names.DESTINATION: "images",
        span_names.MESSAGE: str(run.id),
        span_names.JOB_ID: run.id,
        span_names.RUN_ID: run.id,
        span_names.ATTEMPT: 1,
        span_names.TASK: "resize",
        span_names.WORKER: number,
        span_names.OUTCOME: "failed",
        span_names.RETRY_IN: 0.0,
        span_names.ERROR: "ValueError",
    }
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "ValueError")
    assert (attribute_of(second, span_names.ATTEMPT), attribute_of(second, span_names.OUTCOME)) == (
        2,
        "succeeded",
    )
    assert second.status.status_code is StatusCode.UNSET
    assert attribute_of(start, span_names.RUN_ID) == run.id
    assert attribute_of(start, span_names.DESTINATION) == "images"


async def test_attempt_span_after_sleep_stays_in_the_trace(
    rota_harness: Harness, exported: ExportedSpans
) -> None:
    app = rota_harness.app

    @app.task
    async def onboard(ctx: Context) -> str:
        await ctx.step("welcome", str, 1)
        await ctx.sleep(days=7)
        return await ctx.step("ask", str, 2)

    await onboard.start()
    await rota_harness.run_until_idle()
    await rota_harness.clock.advance(timedelta(days=7))
    await rota_harness.run_until_idle()

    # A replayed step does not run again, and has no second span.
    assert (
        exported.tree()
        == "start onboard\n  run onboard\n    step welcome\n  run onboard\n    step ask"
    )
    assert len(exported.traces()) == 1
    before, after = exported.named("run onboard")
    assert [attribute_of(each, span_names.OUTCOME) for each in (before, after)] == [
        "sleeping",
        "succeeded",
    ]
    assert [attribute_of(each, span_names.RESUMED) for each in (before, after)] == [None, True]
    assert [attribute_of(each, span_names.ATTEMPT) for each in (before, after)] == [1, 1]


async def test_step_span_of_failed_step_has_only_the_error_class(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    def charge(card: str) -> None:
        raise PermissionError(f"card {card} was declined")

    @rota_app.task
    async def pay(ctx: Context, card: str) -> None:
        await ctx.options(retry=Retry(max_attempts=2, delay=0)).step("charge", charge, card)

    async with rota_app.worker():
        run = await pay.options(retry=Retry(max_attempts=1)).start(SECRET)
        with pytest.raises(RunFailed):
            await run.result(timeout=60)

    first, second = exported.named("step charge")
    assert (
        attribute_of(first, span_names.ERROR)
        == attribute_of(second, span_names.ERROR)
        == "PermissionError"
    )
    assert attribute_of(exported.one("run pay"), span_names.ERROR) == "PermissionError"
    assert SECRET not in "".join(each.to_json() for each in exported.spans)
    assert not [event for each in exported.spans for event in each.events]


async def test_spans_contain_no_arguments_results_or_errors(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def echo(ctx: Context, word: str) -> str:
        kept = await ctx.step("keep", str, word)
        await ctx.map([other.bind(kept)], return_exceptions=True)
        return kept

    @rota_app.task
    async def other(word: str) -> None:
        raise RuntimeError(word)

    async with rota_app.worker():
        run = await echo.options(key=SECRET).start(SECRET)
        assert await run.result(timeout=60) == SECRET

    assert SECRET not in "".join(each.to_json() for each in exported.spans)


async def test_attempt_span_of_cancelled_or_returned_job_has_its_outcome(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    began = asyncio.Event()

    @rota_app.task
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async with rota_app.worker() as worker:
        run = await hang.start()
        await began.wait()
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
        began.clear()
        left = await hang.start()
        await began.wait()
        worker.hurry()

    outcomes = [attribute_of(each, span_names.OUTCOME) for each in exported.named("run hang")]
    assert outcomes == ["cancelled", "returned"]
    assert await left.status() == "queued"


async def test_map_span_replayed_by_retry_is_marked_and_linked(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    @rota_app.task
    async def part(n: int) -> int:
        return n

    @rota_app.task(retry=AGAIN)
    async def whole(ctx: Context) -> None:
        await ctx.map([part.bind(1), part.bind(2)])
        if ctx.attempt == 1:
            raise ValueError

    async with rota_app.worker():
        await (await whole.start()).result(timeout=60)

    first, second = exported.named("map part")
    assert [attribute_of(each, span_names.REPLAYED) for each in (first, second)] == [None, True]
    assert {each.parent.span_id for each in exported.named("run part") if each.parent} == {
        id_of(first)
    }
    assert {link.context.span_id for link in second.links} == {
        id_of(each) for each in exported.named("run part")
    }
    assert attribute_of(first, span_names.COUNT) == 2


async def test_attempt_span_after_lost_worker_stays_in_the_trace(
    rota_app: Rota, exported: ExportedSpans
) -> None:
    """The next attempt, on another worker, is in the same trace."""
    client = await rota_app.open()
    began = asyncio.Event()

    @rota_app.task
    async def work(ctx: Context) -> None:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()

    async with rota_app.worker():
        run = await work.start()
        await began.wait()
        async with client.database.connection() as connection:
            await connection.execute("update rota.workers set state = 'dead'")
            await connection.execute("select rota.reap(id) from rota.claims")
        await run.result(timeout=60)

    one, *more = exported.named("run work")
    assert more
    assert (
        {trace_of(each) for each in more}
        == {trace_of(one)}
        == {trace_of(exported.one("start work"))}
    )
    assert "lost" in {attribute_of(each, span_names.OUTCOME) for each in exported.named("run work")}


async def test_trace_links_are_deleted_with_their_run(
    rota_app: Rota, rota_dsn: str, exported: ExportedSpans
) -> None:
    flow = rota_app.flow("pair")

    @flow.task
    async def one() -> int:
        return 1

    @flow.task
    async def two(one: int) -> int:
        return one

    async with rota_app.worker():
        await (await flow.start()).result(timeout=60)
    # Links are stored for waiting jobs, not for the run, because no job waits for it.
    assert len(await fetch(rota_dsn, "select job from rota.trace_links")) == 1

    client = await rota_app.open()
    [found] = await client.database.run_with_retry(retention.find(Retention.parse("0s"), 0))
    await client.database.run_with_retry(retention.remove(found))
    assert await fetch(rota_dsn, "select job from rota.trace_links") == []
    assert await fetch(rota_dsn, "select id from rota.jobs") == []


def test_tracing_guide_lists_every_attribute() -> None:
    page = (ROOT / "docs" / "guides" / "tracing.md").read_text("utf-8")
    told = [name for word, name in vars(span_names).items() if word.isupper() and "." in name]
    assert len(told) > 15
    assert [name for name in told if f"`{name}`" not in page] == []
