"""Everything the checker reads, as plain values: checks are functions of this and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from .history import Line


class Move(msgspec.Struct, frozen=True, gc=False):
    """A job enters or leaves a place, by the database's own record. Times are seconds by the wall."""

    id: int
    tx: int
    at: float
    began: float
    place: str
    enters: bool
    job: int
    claim: int | None = None
    worker: int | None = None
    attempt: int | None = None
    lost: int | None = None
    state: str | None = None


class Job(msgspec.Struct, frozen=True):
    id: int
    task: str
    run: int | None = None
    children: tuple[int, ...] = ()


class Run(msgspec.Struct, frozen=True):
    id: int
    jobs: tuple[int, ...]
    parent: int | None = None
    children: tuple[int, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    job: int
    state: str
    attempt: int
    claim: int | None = None
    worker: int | None = None
    error: str | None = None
    """The type of the error."""


class Effect(msgspec.Struct, frozen=True):
    id: int
    tx: int
    at: float
    job: int
    attempt: int


class StepEffect(msgspec.Struct, frozen=True, gc=False):
    """What a step of a durable function wrote through its transaction."""

    tx: int
    job: int
    step: str
    value: str


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What the code of a job came to, each time it was written."""

    tx: int
    at: float
    job: int
    kind: str
    name: str
    open: bool = False
    until: float | None = None
    result: str | None = None
    again: bool = False
    """It was there already, and closed."""


class Presence(msgspec.Struct, frozen=True):
    """A worker's state changes."""

    id: int
    at: float
    worker: int
    pid: int
    state: str


class Fault(msgspec.Struct, frozen=True):
    """Something that was broken: what, in which process, from when to when. No process: all of them."""

    kind: str
    at: float
    until: float
    pid: int | None = None
    slot: int | None = None


class Sample(msgspec.Struct, frozen=True):
    """A transaction that was found open for long."""

    at: float
    pid: int
    application: str
    state: str
    age: float
    query: str


class Ended(msgspec.Struct, frozen=True):
    """A process of the crew is gone."""

    pid: int
    slot: int
    at: float
    code: int
    """As of Popen: negative for a signal."""
    drained: bool
    """It had been asked to leave."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a task's jobs may use up."""

    attempts: int
    crashes: int
    effect: bool = False
    """Whether it has one transactional effect."""
    poison: bool = False
    """Whether it kills its workers, and belongs in quarantine."""
    limit: int | None = None
    """How many calls it lets run at a time."""


@dataclass(slots=True)
class Evidence:
    moves: Sequence[Move] = ()
    jobs: Mapping[int, Job] = field(default_factory=dict)
    runs: Mapping[int, Run] = field(default_factory=dict)
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)
    quarantined: frozenset[int] = frozenset()
    waiting: Mapping[int, int] = field(default_factory=dict)
    """How many parents of each are open, by its count."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Rows that are left, by place."""
    effects: Sequence[Effect] = ()
    step_effects: Sequence[StepEffect] = ()
    kept: Sequence[Kept] = ()
    results: Mapping[int, list[str]] = field(default_factory=dict)
    """Of durable functions."""
    signals: Mapping[tuple[int, str], str] = field(default_factory=dict)
    presence: Sequence[Presence] = ()
    lines: Sequence[Line] = ()
    acknowledged: frozenset[int] = frozenset()
    """Runs whose start was answered."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    ended: Sequence[Ended] = ()
    samples: Sequence[Sample] = ()
    deadlocks: int = 0
    quiet_at: float = 0.0
    """When the faults were over."""
    quiet_took: float = 0.0
    quiet_within: float = 60.0
    crew: Mapping[int, int] = field(default_factory=dict)
    """Slot → process, of those that ran at the end of the quiet time."""
    beat: float = 0.5
    dead_after: float = 2.0
    capacity: int = 10
    recovery_target: float | None = 3.5
    """Seconds; None: too much else is broken for it to mean anything."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"
