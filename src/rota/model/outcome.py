"""What an attempt came to: a value, matched once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rota.model.replay import Entry


@dataclass(frozen=True, slots=True)
class Done:
    """The code returned; `result` is JSON, None for None."""

    result: str | None


@dataclass(frozen=True, slots=True)
class Again:
    """It failed with attempts left: the next one after so many seconds."""

    delay: float
    error: str


@dataclass(frozen=True, slots=True)
class Ended:
    """It is over without a result."""

    state: Literal["failed", "cancelled", "expired", "skipped"]
    error: str | None


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Nothing was tried: the job goes back as it was, the attempt uncounted."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The job was somebody else's before it ended here: nothing is recorded."""


@dataclass(frozen=True, slots=True)
class Judged:
    """It is not tried again by itself: it was lost with its worker before, or its code has changed."""

    state: Literal["failed", "cancelled", "quarantined"]
    error: str


@dataclass(frozen=True, slots=True)
class Asleep:
    """It waits for a time or a signal, and goes on then; the attempt is not over."""

    kept: tuple[Entry, ...]
    """What it has come to since that was last kept."""
    waits: tuple[Entry, ...]
    """What it waits for: the first of them that is over wakes it."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """It begins anew, with these arguments, as if it had just been started."""

    args: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """It is done, and recorded already, in a transaction of its own."""


Outcome = Done | Again | Ended | Unstarted | Lost | Judged | Recorded | Asleep | Restarted
