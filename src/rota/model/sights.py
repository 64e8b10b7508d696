"""What is seen of the fleet in one look, as far as the rules are about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

MOST = 1000
"""Nothing is counted further than this."""


@dataclass(frozen=True, slots=True)
class Head:
    """The job that is first in a queue's lane."""

    queue: str
    lane: int
    seq: int
    job: int
    task: str
    age: float | None
    """For how many seconds it has been ready at least, as far as the rows tell."""
    serving: int
    """Workers that are there and serve its queue."""
    knowing: int
    """Of these, how many know its task; and how busy they are."""
    running: int
    capacity: int
    paused: bool = False

    @property
    def place(self) -> str:
        return f"{self.lane} {self.queue}"


@dataclass(frozen=True, slots=True)
class Dead:
    worker: int
    host: str
    pid: int
    queues: list[str]
    beat: datetime
    """The last that was heard of it."""


@dataclass(frozen=True, slots=True)
class Alive:
    queues: list[str]
    started: datetime


@dataclass(frozen=True, slots=True)
class Late:
    schedule: str
    target: str
    late: float
    known: bool
    """Whether a worker that is there knows its target."""
    why: str | None


@dataclass(frozen=True, slots=True)
class Failing:
    schedule: str
    failures: int
    paused: bool
    run: int | None


@dataclass(frozen=True, slots=True)
class Quarantined:
    queue: str
    jobs: int
    job: int
    task: str


@dataclass(frozen=True, slots=True)
class Refusals:
    host: str
    jobs: int


@dataclass(frozen=True, slots=True)
class Server:
    snapshot: float | None
    """For how many seconds the oldest transaction is open that keeps rows from being removed, and whose."""
    pid: int | None
    application: str | None
    state: str | None
    notify: float
    """How full the queue of notifications is, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Seen:
    now: datetime
    heads: Sequence[Head] = ()
    dead: Sequence[Dead] = ()
    alive: Sequence[Alive] = ()
    late: Sequence[Late] = ()
    failing: Sequence[Failing] = ()
    quarantined: Sequence[Quarantined] = ()
    refused: Sequence[Refusals] = ()
    server: Sequence[Server] = ()
