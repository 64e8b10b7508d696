"""What an attempt came to: a value, matched once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rota.model.journal import JournalEntry

TIMEOUT_MARGIN_SECONDS = 5.0
"""Seconds an attempt gets beyond its deadline to end by itself, before it is given up."""


class ResultUnstorable(Exception):
    """The code ran, but what it returned cannot be stored; running it again would not help."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The code returned; `result` is JSON, None for None."""

    result: str | None


@dataclass(frozen=True, slots=True)
class Retried:
    """It failed with attempts left: the next one after so many seconds."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class FinalOutcome:
    """It is over without a result."""

    state: Literal["failed", "cancelled", "expired", "skipped"]
    error: str | None


@dataclass(frozen=True, slots=True)
class Returned:
    """Nothing was tried: the job goes back as it was, the attempt uncounted."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """The job was somebody else's before it ended here: nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It is not tried again by itself: it was lost with its worker before, or its code has changed."""

    state: Literal["failed", "cancelled", "quarantined"]
    error: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """It waits for a time or a signal, and goes on then; the attempt is not over."""

    entries: tuple[JournalEntry, ...]
    """What it has come to since that was last kept."""
    waits: tuple[JournalEntry, ...]
    """What it waits for: the first of them that is over wakes it."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """It begins anew, with these arguments, as if it had just been started."""

    args: str


@dataclass(frozen=True, slots=True)
class AlreadyRecorded:
    """It is done, and recorded already, in a transaction of its own."""


Outcome = (
    Succeeded
    | Retried
    | FinalOutcome
    | Returned
    | Discarded
    | Rejected
    | AlreadyRecorded
    | Suspended
    | Restarted
)
