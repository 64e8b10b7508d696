"""Tracing of jobs: from the start, through attempts and steps, to the runs that a job starts.

    request ── start etl ─┬─ run etl.extract ── step fetch
                          ├─ run etl.clean                      ⇠ link: run etl.extract
                          └─ run etl.report ── map resize ── run resize

A start stores its trace context with its jobs, as a W3C traceparent. Every attempt, on any worker and
however late, is a child span of its start. So a request and all the work it caused are one tree, even
over days of sleep. Dependencies between jobs are links, because a span has one parent.

Spans are created with OpenTelemetry's API and go to the tracer provider of the program. Without a
provider, no span is created, stored or read, and OpenTelemetry is not imported: each operation costs one
check.

Errors are recorded by their class alone, because their messages may contain user data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from rota.engine.telemetry import span_names
from rota.engine.telemetry.otel import OpenSpan, OtelTracer, job_attributes, report_lost_span
from rota.errors import SettingsError
from rota.store.jobs import ClaimedJob, StartedJob


class ActiveSpan(Protocol):
    """Open span, or its placeholder if nothing is traced."""

    @property
    def trace(self) -> str | None:
        """Trace context for jobs started in this span."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None: ...

    def link(self, traces: Sequence[str]) -> None: ...


class SpanScope(Protocol):
    """Span that is current while its block lasts, and that records an error by its class."""

    @property
    def trace(self) -> str | None: ...

    def __enter__(self) -> ActiveSpan: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object, /) -> None: ...

    def end(self) -> None:
        """End a span that was never entered."""


class _NoSpan:
    """Placeholder if nothing is traced."""

    trace = None

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        pass

    def link(self, traces: Sequence[str]) -> None:
        pass

    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        pass


NO_SPAN = _NoSpan()


def open_safely(factory: Callable[[], OpenSpan]) -> SpanScope:
    """Return a span, or the placeholder if creating it fails: a broken exporter must not stop the work."""
    try:
        return factory()
    except Exception as error:
        report_lost_span(error)
        return NO_SPAN


class Tracing:
    """Creates spans if tracing is enabled.

    `auto` creates them if the program has a tracer provider, `on` also without one, so that incoming
    traces are propagated, and `off` never.
    """

    def __init__(self, mode: str = "off") -> None:
        self._mode = mode
        self._provider: Any = None
        self._tracer: OtelTracer | None = None

    def active_spans(self) -> OtelTracer | None:
        """Return the tracer, or None if tracing is disabled. A program may set its provider at any time."""
        if self._mode == "off":
            return None
        api: Any = sys.modules.get("opentelemetry.trace")
        if api is None:
            if self._mode == "auto":
                return None  # without the import there is no provider
            try:
                import opentelemetry.trace as api
            except ImportError:
                raise SettingsError(
                    "tracing is on, and OpenTelemetry is not installed: pip install 'pgrota[otel]', or "
                    "set ROTA_TRACING=off"
                ) from None
        provider = api.get_tracer_provider()
        if provider is not self._provider:
            self._provider = provider
            no_op_providers = api.ProxyTracerProvider, api.NoOpTracerProvider
            is_enabled = self._mode == "on" or not isinstance(provider, no_op_providers)
            self._tracer = OtelTracer(api.get_tracer(span_names.SCOPE)) if is_enabled else None
        return self._tracer

    # Spans by kind; without a tracer, each returns the placeholder

    def start(
        self,
        name: str,
        queues: Sequence[str] = (),
        *,
        count: int = 1,
        kind: str = span_names.TASK,
        schedule: str | None = None,
    ) -> SpanScope:
        """Return a span around a start; its jobs are started with its `trace`.

        `kind` is the attribute for the name: a task or a flow. A start by a schedule is a trace of its
        own.
        """
        tracer = self.active_spans()
        if tracer is None:
            return NO_SPAN
        return open_safely(partial(tracer.start, name, queues, count, kind, schedule))

    def step(self, job: ClaimedJob, name: str) -> SpanScope:
        tracer = self.active_spans()
        if tracer is None:
            return NO_SPAN
        attributes = {**job_attributes(job), span_names.STEP_NAME: name}
        return open_safely(
            partial(tracer.child_span, span_names.STEP.format(name=name), attributes)
        )

    def map(self, job: ClaimedJob, name: str, calls: int) -> SpanScope:
        tracer = self.active_spans()
        if tracer is None:
            return NO_SPAN
        attributes = {
            **job_attributes(job),
            span_names.SYSTEM: "rota",
            span_names.OPERATION: "map",
            span_names.OPERATION_TYPE: "send",
            span_names.COUNT: calls,
        }
        return open_safely(
            partial(
                tracer.child_span, span_names.MAP.format(name=name), attributes, is_producer=True
            )
        )

    def transaction(self, job: ClaimedJob) -> SpanScope:
        tracer = self.active_spans()
        if tracer is None:
            return NO_SPAN
        return open_safely(partial(tracer.child_span, span_names.TRANSACTION, job_attributes(job)))


def start_attributes(run: StartedJob) -> dict[str, Any]:
    """Return the attributes of a start that are known after it."""
    return {span_names.RUN_ID: run.run, span_names.CREATED: run.created}
