"""State of a demo at one moment, as plain values for the view, and its measurements.

No measurement is predefined.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_EVENTS = 5
"""Events shown in the view."""


@dataclass(slots=True)
class ProgressRow:
    """Progress of one activity, with a short text."""

    name: str
    done: int = 0
    total: int | None = None
    count: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class DemoWorker:
    worker: int
    pid: int
    state: str
    """`active`, `stopping`, `killed` or `stopped`."""
    held: int
    text: str


@dataclass(frozen=True, slots=True)
class DemoEvent:
    seconds: float
    """Seconds since the start."""
    text: str
    style: str


@dataclass(slots=True)
class WorkerKill:
    """Measurements of one killed worker. Times are seconds since the kill; None if not reached yet."""

    worker: int
    held_jobs: int
    """Number of jobs it held."""
    detected: float | None = None
    """The worker was declared dead and its jobs were taken back."""
    monitor_moved: float | None = None
    """Another instance runs the monitor."""
    recovered: float | None = None
    """The last of its jobs has ended."""
    finished_by: tuple[int, ...] = ()
    """Workers that finished its jobs."""
    succeeded: int = 0
    """Number of its jobs that succeeded."""


@dataclass(slots=True)
class DemoCounters:
    wave_runs: list[int] = field(default_factory=list)
    """Ids of the fast jobs."""
    start_seconds: float = 0.0
    """Total time of starting them."""
    max_rate: float = 0.0
    """Best rate of a wave in jobs per second, without the jobs that are retried."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from start to result of single jobs."""
    flow_states: dict[int, str] = field(default_factory=dict)
    """Run of the flow → state."""
    approved: int = 0
    kill: WorkerKill | None = None
    ticks: int = 0
    """Ticks that have started a run."""
    duplicate_ticks: int = 0
    """Ticks that have started more than one run."""
    missed_ticks: int = 0
    monitor_iterations: int = 0
    job_states: dict[str, int] = field(default_factory=dict)
    """State → number of jobs."""
    retries: int = 0
    open_jobs: int = 0
    """Fast jobs that have not ended."""
    duration: float = 0.0

    @property
    def ended_jobs(self) -> int:
        return sum(self.job_states.values())


@dataclass(slots=True)
class DemoState:
    seconds: float
    began: float | None = None
    """None during setup; `setup_step` then names the current step."""
    setup_step: str = ""
    link_to: Callable[[str], str] | None = None
    """Return the link that signs a browser in and opens a dashboard page; None without a dashboard."""
    flow_run: int | None = None
    """A running flow to show."""
    progress_rows: list[ProgressRow] = field(default_factory=list)
    workers: list[DemoWorker] = field(default_factory=list)
    events: deque[DemoEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    flow_started: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `flow_run` is set."""
    counters: DemoCounters = field(default_factory=DemoCounters)
    unprinted: list[DemoEvent] = field(default_factory=list)
    """Events not printed yet, for output without a terminal."""

    @property
    def elapsed(self) -> float:
        return 0.0 if self.began is None else time.monotonic() - self.began

    @property
    def shown_seconds(self) -> float:
        return min(self.elapsed, self.seconds)

    @property
    def dashboard_url(self) -> str | None:
        return None if self.link_to is None else self.link_to("/")

    @property
    def flow_url(self) -> str | None:
        if self.link_to is None or self.flow_run is None:
            return None
        return self.link_to(f"/runs/{self.flow_run}")

    def show_flow_run(self, run: int) -> None:
        self.flow_run = run
        self.flow_started.set()

    def add_event(self, text: str, style: str = "") -> None:
        event = DemoEvent(self.elapsed, text, style)
        self.events.append(event)
        self.unprinted.append(event)
