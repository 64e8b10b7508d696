"""Outcomes of an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rota.model.journal import JournalEntry

TIMEOUT_MARGIN_SECONDS = 5.0
"""Seconds that an attempt has after its deadline to end by itself before it is abandoned."""


_EXCEPTION: Any = field(default=None, compare=False, repr=False)


class ResultUnstorable(Exception):
    """The code returned a value that cannot be stored. A retry would not help."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The code returned. `result` is JSON text, or None if it returned None."""

    result: str | None


@dataclass(frozen=True, slots=True)
class Retried:
    """The attempt failed and attempts are left; the next one follows after `delay` seconds."""

    delay: float
    error: str
    exception: BaseException | None = _EXCEPTION
    """The raised error, for the log; None if another process raised it."""


@dataclass(frozen=True, slots=True)
class FinalOutcome:
    """The job ended without a result."""

    state: Literal["failed", "cancelled", "expired", "skipped"]
    error: str | None
    exception: BaseException | None = _EXCEPTION


@dataclass(frozen=True, slots=True)
class Returned:
    """The job returns to its queue unchanged; the attempt is not counted."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """This worker lost the claim before the attempt ended, so no outcome is recorded."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The job ends because a worker was lost with it."""

    state: Literal["failed", "cancelled"]
    error: str


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The job waits for an operator: too many workers were lost with it, or its code has changed."""

    error: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """The job waits for a time or a signal and then continues the same attempt."""

    entries: tuple[JournalEntry, ...]
    """Journal entries that are not written yet."""
    waits: tuple[JournalEntry, ...]
    """Entries that the job waits for; the first one that is due wakes it."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """The job restarts with these arguments and an empty journal."""

    args: str


@dataclass(frozen=True, slots=True)
class AlreadyRecorded:
    """The job's own transaction has already recorded its success."""


Outcome = (
    Succeeded
    | Retried
    | FinalOutcome
    | Returned
    | Discarded
    | Rejected
    | Quarantined
    | AlreadyRecorded
    | Suspended
    | Restarted
)
