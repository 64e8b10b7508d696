"""Fixtures that collect the spans of one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rota.engine.durable.journal import WorkerJournal
from support.exported_spans import ExportedSpans


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExportedSpans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # set_tracer_provider() would do the same, but works only once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield ExportedSpans(exporter)
    provider.shutdown()


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspend sleeping jobs after 50 ms."""
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)
