"""Where a job is in somebody's trace: from its start, through attempts and steps, to what it starts itself.

    request ── start etl ─┬─ run etl.extract ── step fetch
                          ├─ run etl.clean                      ⇠ link: run etl.extract
                          └─ run etl.report ── map resize ── run resize

A start keeps where it was with its jobs, as a W3C traceparent. Every attempt, wherever and however late,
is a span below its start, so a request and all that came of it are one tree, also over days of sleep.
Who waited for whom is said by links, since a span has one parent.

Spans are made with OpenTelemetry's API and go where the program's own provider sends them. Where there is
no provider nothing is made, kept or read: neither imported nor asked for more than by one look at a time.
Errors are recorded by their class alone, for what they say may be somebody's data.
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
    """A span, while it is open; or what stands for one where nothing is traced."""

    @property
    def trace(self) -> str | None:
        """Where it is, for jobs to be started there."""

    def set_attributes(self, attributes: Mapping[str, Any]) -> None: ...

    def link(self, traces: Sequence[str]) -> None: ...


class SpanScope(Protocol):
    """A span that is current while its block lasts, and that tells of an error by its class."""

    @property
    def trace(self) -> str | None: ...

    def __enter__(self) -> ActiveSpan: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object, /) -> None: ...

    def end(self) -> None:
        """Of one that was never entered."""


class _NoSpan:
    """No span."""

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
    """A span, or none if whoever collects them is broken: that is not to keep the work from being done."""
    try:
        return factory()
    except Exception as error:
        report_lost_span(error)
        return NO_SPAN


class Tracing:
    """Makes spans, as long as somebody wants them: `auto` where the program has a tracer provider, `on`
    also without one, so that what comes from elsewhere is passed on, `off` never."""

    def __init__(self, mode: str = "off") -> None:
        self._mode = mode
        self._provider: Any = None
        self._tracer: OtelTracer | None = None

    def active_spans(self) -> OtelTracer | None:
        """What makes spans now. A program may set its provider at any time."""
        if self._mode == "off":
            return None
        api: Any = sys.modules.get("opentelemetry.trace")
        if api is None:
            if self._mode == "auto":
                return None  # who has not imported it has no provider
            try:
                import opentelemetry.trace as api
            except ImportError:
                raise SettingsError(
                    "tracing is on, and OpenTelemetry is not installed: pip install 'rota[otel]', or "
                    "set ROTA_TRACING=off"
                ) from None
        provider = api.get_tracer_provider()
        if provider is not self._provider:
            self._provider = provider
            no_op_providers = api.ProxyTracerProvider, api.NoOpTracerProvider
            is_enabled = self._mode == "on" or not isinstance(provider, no_op_providers)
            self._tracer = OtelTracer(api.get_tracer(span_names.SCOPE)) if is_enabled else None
        return self._tracer

    # One call each, for those who do not care whether anything is traced

    def start(
        self,
        name: str,
        queues: Sequence[str] = (),
        *,
        count: int = 1,
        kind: str = span_names.TASK,
        schedule: str | None = None,
    ) -> SpanScope:
        """Around a start; its jobs are started at `.trace`. `what` is started: a task, a flow. One by a
        schedule is a trace of its own."""
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
    """What is said of a start once it is made."""
    return {span_names.RUN_ID: run.run, span_names.CREATED: run.created}
