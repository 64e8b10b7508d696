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

from rota.engine import spans
from rota.engine.otel import Open, Spans, lost, of_job
from rota.errors import SettingsError
from rota.store.jobs import Claimed, Started


class Spanning(Protocol):
    """A span, while it is open; or what stands for one where nothing is traced."""

    @property
    def trace(self) -> str | None:
        """Where it is, for jobs to be started there."""

    def tell(self, attributes: Mapping[str, Any]) -> None: ...

    def link(self, traces: Sequence[str]) -> None: ...


class Around(Protocol):
    """A span that is current while its block lasts, and that tells of an error by its class."""

    @property
    def trace(self) -> str | None: ...

    def __enter__(self) -> Spanning: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object, /) -> None: ...

    def end(self) -> None:
        """Of one that was never entered."""


class _Quiet:
    """No span."""

    trace = None

    def tell(self, attributes: Mapping[str, Any]) -> None:
        pass

    def link(self, traces: Sequence[str]) -> None:
        pass

    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def end(self) -> None:
        pass


QUIET = _Quiet()


def safely(make: Callable[[], Open]) -> Around:
    """A span, or none if whoever collects them is broken: that is not to keep the work from being done."""
    try:
        return make()
    except Exception as error:
        lost(error)
        return QUIET


class Tracing:
    """Makes spans, as long as somebody wants them: `auto` where the program has a tracer provider, `on`
    also without one, so that what comes from elsewhere is passed on, `off` never."""

    def __init__(self, mode: str = "off") -> None:
        self._mode = mode
        self._provider: Any = None
        self._spans: Spans | None = None

    def look(self) -> Spans | None:
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
            none = api.ProxyTracerProvider, api.NoOpTracerProvider
            wanted = self._mode == "on" or not isinstance(provider, none)
            self._spans = Spans(api.get_tracer(spans.SCOPE)) if wanted else None
        return self._spans

    # One call each, for those who do not care whether anything is traced

    def start(
        self,
        name: str,
        queues: Sequence[str] = (),
        *,
        count: int = 1,
        what: str = spans.TASK,
        schedule: str | None = None,
    ) -> Around:
        """Around a start; its jobs are started at `.trace`. `what` is started: a task, a flow. One by a
        schedule is a trace of its own."""
        made = self.look()
        if made is None:
            return QUIET
        return safely(partial(made.start, name, queues, count, what, schedule))

    def step(self, job: Claimed, name: str) -> Around:
        made = self.look()
        if made is None:
            return QUIET
        attributes = {**of_job(job), spans.STEP_NAME: name}
        return safely(partial(made.within, spans.STEP.format(name=name), attributes))

    def map(self, job: Claimed, name: str, calls: int) -> Around:
        made = self.look()
        if made is None:
            return QUIET
        attributes = {
            **of_job(job),
            spans.SYSTEM: "rota",
            spans.OPERATION: "map",
            spans.OPERATION_TYPE: "send",
            spans.COUNT: calls,
        }
        return safely(partial(made.within, spans.MAP.format(name=name), attributes, sends=True))

    def transaction(self, job: Claimed) -> Around:
        made = self.look()
        if made is None:
            return QUIET
        return safely(partial(made.within, spans.TRANSACTION, of_job(job)))


def started(run: Started) -> dict[str, Any]:
    """What is said of a start once it is made."""
    return {spans.RUN_ID: run.run, spans.CREATED: run.created}
