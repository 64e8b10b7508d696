"""Spans, made with OpenTelemetry's API: the one place that knows it. It is imported when the first is made.

Where a span is goes into the database, and from process to process, as a W3C traceparent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rota.engine import spans
from rota.model import codec
from rota.model.outcome import (
    Again,
    Asleep,
    Done,
    Ended,
    Judged,
    Lost,
    Outcome,
    Recorded,
    Restarted,
    Unstarted,
)
from rota.store.jobs import Claimed

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, Tracer

log = logging.getLogger("rota")

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

SAMPLED = 1


class Spans:
    """Makes spans with a tracer."""

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
        what: str,
        schedule: str | None,
    ) -> Open:
        """A start: below what is current; of a schedule, a trace of its own."""
        attributes: dict[str, Any] = {
            spans.SYSTEM: "rota",
            spans.OPERATION: "start",
            spans.OPERATION_TYPE: "send",
            what: name,
        }
        if len(queues) == 1:
            attributes[spans.DESTINATION] = queues[0]
        if count > 1:
            attributes[spans.COUNT] = count
        if schedule is not None:
            attributes[spans.SCHEDULE] = schedule
        span = self._tracer.start_span(
            spans.START.format(name=name),
            context=None if schedule is None else self._context.Context(),
            kind=self._api.SpanKind.PRODUCER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        )
        return Open(self, span)

    def within(self, name: str, attributes: Mapping[str, Any], *, sends: bool = False) -> Open:
        """Something a job does."""
        span = self._tracer.start_span(
            name,
            kind=self._api.SpanKind.PRODUCER if sends else self._api.SpanKind.INTERNAL,
            attributes=dict(attributes),
            record_exception=False,
            set_status_on_exception=False,
        )
        return Open(self, span)

    def attempt(self, job: Claimed, worker: int | None) -> Span:
        """An attempt, below the job's start. It is current from now on, where this is called, and until its
        context goes: each attempt has one of its own."""
        attributes: dict[str, Any] = {
            spans.SYSTEM: "rota",
            spans.OPERATION: "run",
            spans.OPERATION_TYPE: "process",
            spans.DESTINATION: job.queue,
            spans.MESSAGE: str(job.job),
            **of_job(job),
            spans.TASK: job.task,
        }
        if worker is not None:
            attributes[spans.WORKER] = worker
        if job.begun:
            attributes[spans.RESUMED] = True
        started = self.place(job.trace) if job.trace is not None else None
        nowhere: Context = self._context.Context()
        above = nowhere
        if started is not None:
            above = self._api.set_span_in_context(self._api.NonRecordingSpan(started), nowhere)
        span = self._tracer.start_span(
            spans.RUN.format(task=job.task),
            context=above,
            kind=self._api.SpanKind.CONSUMER,
            attributes=attributes,
            links=self.links(job.links or ()),
            record_exception=False,
            set_status_on_exception=False,
        )
        job.span = traceparent(span)
        self._context.attach(self._api.set_span_in_context(span, nowhere))
        return span

    def end(self, span: Span, outcome: Outcome) -> None:
        """An attempt has come to something."""
        if span.is_recording():
            word, error = _come_to(outcome)
            span.set_attribute(spans.OUTCOME, word)
            if isinstance(outcome, Again):
                span.set_attribute(spans.RETRY_IN, outcome.delay)
            if error is not None:
                self.fail(span, codec.error_type(error) or "Exception")
        span.end()

    def fail(self, span: Span, kind: str) -> None:
        span.set_attribute(spans.ERROR, kind)
        span.set_status(self._api.StatusCode.ERROR, kind)

    def links(self, traces: Sequence[str]) -> list[Link]:
        places = (self.place(each) for each in traces)
        return [self._api.Link(each) for each in places if each is not None]

    def place(self, text: str) -> SpanContext | None:
        """A place that was kept; None: it makes no sense."""
        found = _TRACEPARENT.fullmatch(text)
        if found is None:
            return None
        place = self._api.SpanContext(
            trace_id=int(found[1], 16),
            span_id=int(found[2], 16),
            is_remote=True,
            trace_flags=self._api.TraceFlags(int(found[3], 16)),
        )
        return place if place.is_valid else None

    def attach(self, span: Span) -> Any:
        return self._context.attach(self._api.set_span_in_context(span))

    def detach(self, token: Any) -> None:
        self._context.detach(token)


class Open:
    """A span that is open."""

    __slots__ = ("_made", "_span", "_token", "trace")

    def __init__(self, made: Spans, span: Span) -> None:
        self._made = made
        self._span = span
        self._token: Any = None
        self.trace = traceparent(span)

    def __enter__(self) -> Open:
        self._token = self._made.attach(self._span)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._made.detach(self._token)
        if error is not None:
            self._made.fail(self._span, type(error).__name__)
        self.end()

    def tell(self, attributes: Mapping[str, Any]) -> None:
        self._span.set_attributes(dict(attributes))

    def link(self, traces: Sequence[str]) -> None:
        for each in self._made.links(traces):
            self._span.add_link(each.context)

    def end(self) -> None:
        try:
            self._span.end()
        except Exception as error:
            lost(error)


def traceparent(span: Span) -> str | None:
    """Where a span is; None: nowhere."""
    place = span.get_span_context()
    if not place.is_valid:
        return None
    return f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.trace_flags:02x}"


def is_kept(trace: str) -> bool:
    """Whether anybody will see a span that is there."""
    return bool(int(trace[-2:], 16) & SAMPLED)


def continue_at(trace: str) -> None:
    """Let code that comes now, in a process of its own, be where its attempt is."""
    try:
        from opentelemetry import trace as api
    except ImportError:
        return
    made = Spans(api.get_tracer(spans.SCOPE))
    if (place := made.place(trace)) is not None:
        made.attach(api.NonRecordingSpan(place))


_complained: set[str] = set()


def lost(error: Exception) -> None:
    """Tell of a span that is lost, once for each kind of trouble."""
    kind = type(error).__name__
    log.log(logging.DEBUG if kind in _complained else logging.WARNING, "a span is lost: %s", kind)
    _complained.add(kind)


def of_job(job: Claimed) -> dict[str, Any]:
    return {
        spans.JOB_ID: job.job,
        spans.RUN_ID: job.job if job.run is None else job.run,
        spans.ATTEMPT: job.attempt,
    }


def _come_to(outcome: Outcome) -> tuple[str, str | None]:
    """An outcome in a word, and the error it came of."""
    match outcome:
        case Done() | Recorded():
            return "succeeded", None
        case Again():
            return "failed", outcome.error
        case Ended(state, error):
            return state, error if state == "failed" else None
        case Judged(state, error):
            return state, error
        case Asleep():
            return "asleep", None
        case Restarted():
            return "restarted", None
        case Unstarted():
            return "given back", None
        case Lost():
            return "lost", None
