"""Measurements of a demo. No value is predefined."""

from __future__ import annotations

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
