"""Spans created with OpenTelemetry's API. No other module uses it, and it is imported with the first span.

The context of a span is stored in the database and passed between processes as a W3C traceparent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rota.engine.telemetry import span_names
from rota.model import codec
from rota.model.outcome import (
    AlreadyRecorded,
    Discarded,
    FinalOutcome,
    Outcome,
    Quarantined,
    Rejected,
    Restarted,
    Retried,
    Returned,
    Succeeded,
    Suspended,
)
from rota.store.jobs import ClaimedJob

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

log = logging.getLogger("rota")

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

SAMPLED = 1


class OtelTracer:
    """Creates spans with a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry import context, trace

        self._tracer = tracer
        self._api = trace
        self._context = context

    def start(
        self,
        name: str,
        queues: Sequence[str],
        count: int,
        kind: str,
        schedule: str | None,
    ) -> OpenSpan:
        """Open a span for a start: a child of the current span, or the root of a trace for a schedule."""
        attributes: dict[str, Any] = {
            span_names.SYSTEM: "rota",
            span_names.OPERATION: "start",
            span_names.OPERATION_TYPE: "send",
            kind: name,
        }
        if len(queues) == 1:
            attributes[span_names.DESTINATION] = queues[0]
        if count > 1:
            attributes[span_names.COUNT] = count
        if schedule is not None:
            attributes[span_names.SCHEDULE] = schedule
        span = self._tracer.start_span(
            span_names.START.format(name=name),
            context=None if schedule is None else self._context.Context(),
            kind=self._api.SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )
        return OpenSpan(self, span)

    def child_span(
        self, name: str, attributes: Mapping[str, Any], *, is_producer: bool = False
    ) -> OpenSpan:
        """Open a span for an operation of a job."""
        span = self._tracer.start_span(
            name,
            kind=self._api.SpanKind.PRODUCER if is_producer else self._api.SpanKind.INTERNAL,
            attributes=dict(attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        return OpenSpan(self, span)

    def start_attempt(self, job: ClaimedJob, worker: int | None) -> Span:
        """Open a span for an attempt, as a child of the job's start.

        The span stays current in the calling context; each attempt has a context of its own.
        """
        attributes: dict[str, Any] = {
            span_names.SYSTEM: "rota",
            span_names.OPERATION: "run",
            span_names.OPERATION_TYPE: "process",
            span_names.DESTINATION: job.queue,
            span_names.MESSAGE: str(job.job),
            **job_attributes(job),
            span_names.TASK: job.task,
        }
        if worker is not None:
            attributes[span_names.WORKER] = worker
        if job.has_steps:
            attributes[span_names.RESUMED] = True
        start_context = self.parse_traceparent(job.trace) if job.trace is not None else None
        empty_context: Context = self._context.Context()
        parent = empty_context
        if start_context is not None:
            parent = self._api.set_span_in_context(
                self._api.NonRecordingSpan(start_context), empty_context
            )
        span = self._tracer.start_span(
            span_names.RUN.format(task=job.task),
            context=parent,
            kind=self._api.SpanKind.CONSUMER,
            attributes=attributes,
            links=self.links(job.trace_links or ()),
            record_exception=False,
            set_status_on_exception=False,
        )
        job.span = traceparent(span)
        self._context.attach(self._api.set_span_in_context(span, empty_context))
        return span

    def end_attempt(self, span: Span, outcome: Outcome) -> None:
        """End the span of an attempt with its outcome."""
        if span.is_recording():
            outcome_name, error = _outcome_name(outcome)
            span.set_attribute(span_names.OUTCOME, outcome_name)
            if isinstance(outcome, Retried):
                span.set_attribute(span_names.RETRY_IN, outcome.delay)
            if error is not None:
                self.set_error(span, codec.error_type(error) or "Exception")
        span.end()

    def set_error(self, span: Span, error_type: str) -> None:
        span.set_attribute(span_names.ERROR, error_type)
        span.set_status(self._api.StatusCode.ERROR, error_type)

    def links(self, traces: Sequence[str]) -> list[Link]:
        contexts = (self.parse_traceparent(each) for each in traces)
        return [self._api.Link(each) for each in contexts if each is not None]

    def parse_traceparent(self, text: str) -> SpanContext | None:
        """Return the span context of a traceparent, or None if it is invalid."""
        found = _TRACEPARENT.fullmatch(text)
        if found is None:
            return None
        context = self._api.SpanContext(
            trace_id=int(found[1], 16),
            span_id=int(found[2], 16),
            is_remote=True,
            trace_flags=self._api.TraceFlags(int(found[3], 16)),
        )
        return context if context.is_valid else None

    def attach(self, span: Span) -> Any:
        return self._context.attach(self._api.set_span_in_context(span))

    def detach(self, token: Any) -> None:
        self._context.detach(token)


class OpenSpan:
    __slots__ = ("_span", "_token", "_tracer", "trace")

    def __init__(self, tracer: OtelTracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._token: Any = None
        self.trace = traceparent(span)

    def __enter__(self) -> OpenSpan:
        self._token = self._tracer.attach(self._span)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._tracer.detach(self._token)
        if error is not None:
            self._tracer.set_error(self._span, type(error).__name__)
        self.end()

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes(dict(attributes))

    def link(self, traces: Sequence[str]) -> None:
        for each in self._tracer.links(traces):
            self._span.add_link(each.context)

    def end(self) -> None:
        try:
            self._span.end()
        except Exception as error:
            report_lost_span(error)


def traceparent(span: Span) -> str | None:
    """Return the traceparent of a span, or None if its context is invalid."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def is_sampled(trace: str) -> bool:
    """True if the trace is sampled, so that its spans are exported."""
    return bool(int(trace[-2:], 16) & SAMPLED)


def continue_trace(trace: str) -> None:
    """Make the span of an attempt current for code in a child process."""
    try:
        from opentelemetry import trace as api
    except ImportError:
        return
    tracer = OtelTracer(api.get_tracer(span_names.SCOPE))
    if (context := tracer.parse_traceparent(trace)) is not None:
        tracer.attach(api.NonRecordingSpan(context))


_reported: set[str] = set()


def report_lost_span(error: Exception) -> None:
    """Log a lost span, as a warning once for each class of error."""
    kind = type(error).__name__
    log.log(logging.DEBUG if kind in _reported else logging.WARNING, "a span is lost: %s", kind)
    _reported.add(kind)


def job_attributes(job: ClaimedJob) -> dict[str, Any]:
    return {
        span_names.JOB_ID: job.job,
        span_names.RUN_ID: job.job if job.run is None else job.run,
        span_names.ATTEMPT: job.attempt,
    }


def _outcome_name(outcome: Outcome) -> tuple[str, str | None]:
    """Return the name of an outcome, and its error."""
    match outcome:
        case Succeeded() | AlreadyRecorded():
            return "succeeded", None
        case Retried():
            return "failed", outcome.error
        case FinalOutcome(state, error):
            return state, error if state == "failed" else None
        case Rejected(state, error):
            return state, error
        case Quarantined(error):
            return "quarantined", error
        case Suspended():
            return "sleeping", None
        case Restarted():
            return "restarted", None
        case Returned():
            return "returned", None
        case Discarded():
            return "lost", None
