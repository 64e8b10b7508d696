"""Log records that carry the job they were written for, as text or as JSON.

`rota worker` and `rota serve` write such lines to stderr. A program with its own handlers can use the
parts:

    handler.addFilter(JobFilter())          # any formatter can use %(run)s, %(job)s, %(attempt)s, …
    handler.setFormatter(JsonFormatter())   # one JSON object per line

The job is known in coroutines, in threads and in the processes of isolated tasks, for every logger.
Arguments and results are never included.
"""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from rota.model import current_job
from rota.model.current_job import CurrentJob

__all__ = ["JobFilter", "JsonFormatter", "TextFormatter", "current_fields", "to_stderr"]

Format = Literal["text", "json"]

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

FIELDS = ("worker", "run", "job", "task", "attempt", "trace_id", "span_id")
"""Fields that a record receives if they are known at the place of the log call."""


class LogSetup(msgspec.Struct, frozen=True):
    """Log configuration of this program, passed on to the processes of isolated tasks."""

    level: str
    format: Format


_setup: LogSetup | None = None


class JobFilter(logging.Filter):
    """Logging filter that adds the fields of the current job to each record.

    It sets `worker`, `run`, `job`, `task`, `attempt`, `trace_id` and `span_id`; a field without a value is
    None. A field that the record already has, from `extra=`, is kept. No record is dropped. Attach the
    filter to a handler in front of any queue: it reads the context of the log call.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        known = current_fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, known.get(name))
        return True


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per line.

    time (UTC), level, logger, message, process               always
    worker, run, job, task, attempt, trace_id, span_id        if known
    exception, stack                                          as text, if present
    extra                                                     fields that the caller added, if any
    """

    def __init__(self) -> None:
        super().__init__()
        self._encoder = msgspec.json.Encoder(enc_hook=repr)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            **_fields_of(record),
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        if extra := {
            name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES
        }:
            line["extra"] = extra
        try:
            return self._encoder.encode(line).decode()
        except (UnicodeEncodeError, ValueError, TypeError, RecursionError):
            # A lone surrogate or a circular value: write the line with replacements.
            return self._encoder.encode(
                {name: _encodable(each) for name, each in line.items()}
            ).decode()


class TextFormatter(logging.Formatter):
    """Formatter that writes one line per record: time, level, process, job if known, message. Times are
    UTC, as in the database."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%d %H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__("%(message)s")
        self._colour = colour

    def formatMessage(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower():<7}"
        if self._colour:
            level = f"\x1b[{_COLOURS.get(record.levelname, 2)}m{level}\x1b[0m"
        fields = _fields_of(record)
        job = f"(job {fields['job']}, attempt {fields['attempt']}) " if "job" in fields else ""
        if record.name == "rota" and not current_job.job.get():
            job = ""  # Rota's own messages name the job
        return f"{self.formatTime(record)} {level} [{record.process}] {job}{record.message}"


def to_stderr(level: str = "info", format: Format = "text") -> None:
    """Log to stderr from this level on, unless the root logger already has handlers."""
    global _setup
    handler = logging.StreamHandler()
    if format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(colour=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    _setup = LogSetup(level, format)


def current_setup() -> LogSetup | None:
    """Return the arguments of `to_stderr`; None if it was not called."""
    return _setup


def job_fields(job: CurrentJob) -> dict[str, Any]:
    """Return `extra=` for a record about a job that is written outside its code."""
    return {"run": _run_of(job), "job": job.job, "task": job.task, "attempt": job.attempt}


def current_fields() -> dict[str, Any]:
    """Return the job, worker and trace fields that are known at the place of the call."""
    known: dict[str, Any] = {}
    if (worker := current_job.worker.get()) is not None:
        known["worker"] = worker
    if (job := current_job.job.get()) is not None:
        known |= job_fields(job)
    # Use OpenTelemetry only if the program has imported it; otherwise nothing is traced.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and hasattr(trace, "get_current_span"):
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            known |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return known


def _run_of(job: CurrentJob) -> int:
    return job.job if job.run is None else job.run


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that a filter or the caller set on the record; otherwise the ones known here."""
    attributes = vars(record)
    known = {} if all(name in attributes for name in FIELDS) else current_fields()
    found = {name: attributes.get(name, known.get(name)) for name in FIELDS}
    return {name: value for name, value in found.items() if value is not None}


_STANDARD_ATTRIBUTES = {
    *vars(logging.makeLogRecord({})),
    *FIELDS,
    "message",
    "asctime",
    "taskName",
}
"""Attributes that every record has, some only after formatting."""

_COLOURS = {"WARNING": 33, "ERROR": 31, "CRITICAL": 31}


def _encodable(value: Any) -> Any:
    if isinstance(value, int | datetime):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()
