"""State of a demo at one moment, as plain values for the view, and its measurements.

No measurement is predefined.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field


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
    wave_rates: list[float] = field(default_factory=list)
    """Jobs per second of each wave, without the jobs that are retried."""
    machine: str = ""
    """Machine of these rates: `4 cores with PostgreSQL 18.1`."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from start to result of single jobs."""
    flow_states: list[str] = field(default_factory=list)
    """States of the runs of the flow."""
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


@dataclass(slots=True)
class DemoState:
    seconds: float
    link_to: Callable[[str], str] | None = None
    """Return the link that signs a browser in and opens a dashboard page; None without a dashboard."""
    print_line: Callable[[str, str], object] = lambda text, style: None
    """Print a line in a style."""
    step_began: float = field(default_factory=time.monotonic)
    """Start of the current step of the preparations."""
    began: float | None = None
    """Start of the demo; None during the preparations."""
    rows: dict[str, str] = field(default_factory=dict)
    """Activities, workers and runs of the flow, each with a short text."""
    flow_url: str | None = None
    """Page of the first run of the flow."""
    flow_started: asyncio.Event = field(default_factory=asyncio.Event)
    counters: DemoCounters = field(default_factory=DemoCounters)

    @property
    def dashboard_url(self) -> str | None:
        return None if self.link_to is None else self.link_to("/")

    def begin_step(self, step: str) -> None:
        self.step_began = time.monotonic()
        self.print_line(f"{step} …", "dim")

    def begin_flow(self, run: int) -> None:
        """Print the links, if this is the first run of the flow."""
        if self.flow_started.is_set():
            return
        self.flow_started.set()
        if self.link_to is not None:
            self.flow_url = self.link_to(f"/runs/{run}")
            self.print_line(f"dashboard       {self.dashboard_url}", "bold cyan")
            self.print_line(f"a running flow  {self.flow_url}", "bold cyan")

    def add_event(self, text: str, style: str = "") -> None:
        seconds = 0.0 if self.began is None else time.monotonic() - self.began
        self.print_line(f"{seconds:5.1f} s  {text}", style)
