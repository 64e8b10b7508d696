"""What an attempt came to: a value, matched once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
    """It was lost with its worker before, and is not to be tried again."""

    state: Literal["failed", "cancelled", "quarantined"]
    error: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """It is done, and recorded already, in a transaction of its own."""


Outcome = Done | Again | Ended | Unstarted | Lost | Judged | Recorded
