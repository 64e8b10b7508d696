"""Without tracing, no span is created, stored or queried."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace

from rota import Context, Rota
from rota.engine.telemetry import otel
from rota.errors import SettingsError
from rota.model.settings import Settings
from support.exported_spans import ExportedSpans, links_of
from support.queries import fetch


async def run_all(app: Rota) -> None:
    """Run every kind of traced operation once."""
    flow = app.flow("pair")

    @flow.task
    async def one(ctx: Context) -> int:
        async with ctx.transaction():
            return await ctx.step("one", int, 1)

    @flow.task
    async def two(ctx: Context, one: int) -> list[int]:
        return await ctx.map([part.bind(one)])

    @app.task
    async def part(n: int) -> int:
        return n

    async with app.worker():
        run = await flow.start()
        parts = await app.start_many([part.bind(1)] * 600)
        await run.result(timeout=60)
        await parts[-1].result(timeout=60)


def forbid_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the creation of a tracer and the use of trace links fail."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something is traced")

    monkeypatch.setattr(otel.OtelTracer, "__init__", never)
    monkeypatch.setattr("rota.store.trace_links.write", never)
    monkeypatch.setattr("rota.store.trace_links.read", never)
    monkeypatch.setattr("rota.store.trace_links.read_of_calls", never)


async def test_tracing_without_provider_stores_nothing(
    rota_app: Rota, rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_tracing(monkeypatch)

    await run_all(rota_app)

    kept = "select count(*), count(trace) from rota.jobs union all select 0, count(*) from rota.trace_links"
    assert await fetch(rota_dsn, kept) == [(603, 0), (0, 0)]


async def test_tracing_off_ignores_the_provider(
    rota_dsn: str, exported: ExportedSpans, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_tracing(monkeypatch)
    async with Rota(rota_dsn, tracing="off") as app:
        with trace.get_tracer("tests").start_as_current_span("request"):
            await run_all(app)

    assert [each.name for each in exported.spans] == ["request"]
    assert await fetch(rota_dsn, "select count(trace) from rota.jobs") == [(0,)]


async def test_tracing_on_without_provider_propagates_the_context(rota_dsn: str) -> None:
    """The case of a program without tracing between two programs with it."""
    found: list[int] = []
    async with Rota(rota_dsn, tracing="on") as app:

        @app.task
        async def work() -> None:
            found.append(trace.get_current_span().get_span_context().trace_id)

        comes = trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1))
        async with app.worker():
            with trace.use_span(trace.NonRecordingSpan(comes)):
                run = await work.start()
            await run.result(timeout=60)
            await (await work.start()).result(timeout=60)

    assert found == [7, 0]


async def test_tracing_provider_set_later_is_used(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    @rota_app.task
    async def work() -> None: ...

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
        seen: ExportedSpans = request.getfixturevalue("exported")
        await (await work.start()).result(timeout=60)

    assert seen.tree() == "start work\n  run work"
    assert links_of(seen.one("run work")) == set()


async def test_tracing_error_does_not_fail_the_job(
    rota_app: Rota, exported: ExportedSpans, monkeypatch: pytest.MonkeyPatch
) -> None:
    @rota_app.task
    async def work(ctx: Context) -> int:
        return await ctx.step("one", int, 1)

    def broken(*_: object, **__: object) -> None:
        raise OSError("the collector's disk is full")

    async with rota_app.worker():
        await (await work.start()).result(timeout=60)
        for name in (
            "opentelemetry.sdk.trace.Tracer.start_span",
            "opentelemetry.sdk.trace.Span.end",
        ):
            with monkeypatch.context() as patched:
                patched.setattr(name, broken)
                assert await (await work.start()).result(timeout=60) == 1


def test_tracing_library_is_not_imported_by_rota() -> None:
    modules = "rota, rota.app.client, rota.engine.worker.worker, sys"
    code = f"import {modules}; print('opentelemetry' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


def test_tracing_setting_invalid_or_without_package_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingsError, match="auto, on or off"):
        Settings(tracing="maybe")
    monkeypatch.setattr("rota.model.settings.find_spec", lambda name: None)
    assert Settings(tracing="auto").tracing == "auto"
    with pytest.raises(SettingsError, match=r"pip install 'pgrota\[otel\]'"):
        Settings(tracing="on")
