"""Evidence for the checker as plain values. Checks are functions of it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from .history import Line


class Move(msgspec.Struct, frozen=True, gc=False):
    """Move of a job into or out of a place (a state's table), by the database's record.

    Times are wall-clock seconds.
    """

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
    crashes: int | None = None
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
    """Type of the error."""


class Effect(msgspec.Struct, frozen=True):
    id: int
    tx: int
    at: float
    job: int
    attempt: int


class StepEffect(msgspec.Struct, frozen=True, gc=False):
    """Row that a step of a durable function wrote through its transaction."""

    tx: int
    job: int
    step: str
    value: str


class JournalWrite(msgspec.Struct, frozen=True, gc=False):
    """Journal entry of a job, once for each write."""

    tx: int
    at: float
    job: int
    kind: str
    name: str
    open: bool = False
    until: float | None = None
    result: str | None = None
    again: bool = False
    """True if it existed already and was closed."""


class WorkerStateChange(msgspec.Struct, frozen=True):
    """Change of a worker's state."""

    id: int
    at: float
    worker: int
    pid: int
    state: str


class Fault(msgspec.Struct, frozen=True):
    """Fault: its kind, its process and its period. Without a process it applies to all."""

    kind: str
    at: float
    until: float
    pid: int | None = None
    slot: int | None = None


class Sample(msgspec.Struct, frozen=True):
    """Transaction that was found open for long."""

    at: float
    pid: int
    application: str
    state: str
    age: float
    query: str


class ProcessExit(msgspec.Struct, frozen=True):
    """Exit of a process of the crew."""

    pid: int
    slot: int
    at: float
    code: int
    """Exit code as of Popen: negative for a signal."""
    drained: bool
    """True if it had been asked to drain."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Budget of a task's jobs."""

    attempts: int
    crashes: int
    effect: bool = False
    """True if the task has one transactional effect."""
    poison: bool = False
    """True if the task kills its workers and belongs in quarantine."""
    limit: int | None = None
    """Calls of a job that may run at the same time."""


@dataclass(slots=True)
class Evidence:
    moves: Sequence[Move] = ()
    jobs: Mapping[int, Job] = field(default_factory=dict)
    runs: Mapping[int, Run] = field(default_factory=dict)
    outcomes: Mapping[int, Outcome] = field(default_factory=dict)
    quarantined: frozenset[int] = frozenset()
    waiting: Mapping[int, int] = field(default_factory=dict)
    """Counter of open predecessors, by waiting job or run."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Number of remaining rows, by place."""
    effects: Sequence[Effect] = ()
    step_effects: Sequence[StepEffect] = ()
    kept: Sequence[JournalWrite] = ()
    results: Mapping[int, list[str]] = field(default_factory=dict)
    """Results of durable functions."""
    signals: Mapping[tuple[int, str], str] = field(default_factory=dict)
    presence: Sequence[WorkerStateChange] = ()
    lines: Sequence[Line] = ()
    acknowledged: frozenset[int] = frozenset()
    """Runs whose start was answered."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    ended: Sequence[ProcessExit] = ()
    samples: Sequence[Sample] = ()
    deadlocks: int = 0
    quiet_at: float = 0.0
    """Time at which the faults ended."""
    quiet_took: float = 0.0
    quiet_within: float = 60.0
    crew: Mapping[int, int] = field(default_factory=dict)
    """Process by slot, of those that ran at the end of the quiet period."""
    beat: float = 0.5
    dead_after: float = 2.0
    capacity: int = 10
    recovery_target: float | None = 3.5
    """Seconds; None if other faults make the measurement meaningless."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"
