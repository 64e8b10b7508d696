"""Log lines that say which job they were written for, as text or as JSON.

`rota worker` and `rota serve` write them to stderr. A program with handlers of its own takes what it
wants of it:

    handler.addFilter(JobFilter())          # any formatter can say %(run)s, %(job)s, %(attempt)s, …
    handler.setFormatter(JsonFormatter())   # one JSON object a line

What is known of the job is known in coroutines, in threads and in the processes of isolated tasks, and to
every logger, whoever's it is. Arguments and results are never among it.
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
"""What a line is given, of what is known where it is written."""


class LogSetup(msgspec.Struct, frozen=True):
    """How this program logs, for the processes of its isolated tasks to do the same."""

    level: str
    format: Format


_setup: LogSetup | None = None


class JobFilter(logging.Filter):
    """Lets everything pass, and gives each record `worker`, `run`, `job`, `task`, `attempt`, `trace_id` and
    `span_id`: None, where there is none. Put it on a handler, in front of any queue: it looks at where the
    line is written. What a record has under such a name already, from `extra=`, it keeps."""

    def filter(self, record: logging.LogRecord) -> bool:
        known = current_fields()
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, known.get(name))
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, `process`; of the job it was
    written for, if there is one, `worker`, `run`, `job`, `task`, `attempt`, `trace_id` and `span_id`;
    `exception` and `stack` as text, and `extra` with what the caller has added."""

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
            # A letter that is none, something that contains itself: the line is written all the same.
            return self._encoder.encode(
                {name: _encodable(each) for name, each in line.items()}
            ).decode()


class TextFormatter(logging.Formatter):
    """A line an event: when, how bad, which process, for which job if for one, what. Times are UTC, as in
    the database."""

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
            job = ""  # its own lines name the job they are about
        return f"{self.formatTime(record)} {level} [{record.process}] {job}{record.message}"


def to_stderr(level: str = "info", format: Format = "text") -> None:
    """Write everything from this level on to stderr, unless the program logs somewhere already."""
    global _setup
    handler = logging.StreamHandler()
    if format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(colour=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    _setup = LogSetup(level, format)


def current_setup() -> LogSetup | None:
    """How `to_stderr` was called; None: it was not."""
    return _setup


def job_fields(job: CurrentJob) -> dict[str, Any]:
    """`extra=` of a line about a job that is written beside it: when it has ended, for instance."""
    return {"run": _run_of(job), "job": job.job, "task": job.task, "attempt": job.attempt}


def current_fields() -> dict[str, Any]:
    """What is known where this is called."""
    known: dict[str, Any] = {}
    if (worker := current_job.worker.get()) is not None:
        known["worker"] = worker
    if (job := current_job.job.get()) is not None:
        known |= job_fields(job)
    # Not imported for it: who has not imported it traces nothing.
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None and hasattr(trace, "get_current_span"):
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            known |= {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"}
    return known


def _run_of(job: CurrentJob) -> int:
    return job.job if job.run is None else job.run


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What a filter or the caller has given the record, else what is known here."""
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
"""What every record has, or has once it was formatted."""

_COLOURS = {"WARNING": 33, "ERROR": 31, "CRITICAL": 31}


def _encodable(value: Any) -> Any:
    if isinstance(value, int | datetime):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text.encode("utf-8", "backslashreplace").decode()
