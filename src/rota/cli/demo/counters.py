"""What a demo has seen, in figures: counted and measured, none of them written down beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class WorkerKill:
    """One worker is killed. Times are seconds since then; None: it has not happened yet."""

    worker: int
    held_jobs: int
    """So many it held."""
    detected: float | None = None
    """It was found dead, and what it held went back."""
    monitor_moved: float | None = None
    """Another instance ran the monitor."""
    recovered: float | None = None
    """The last of its jobs had ended."""
    finished_by: tuple[int, ...] = ()
    """Workers that ended them."""
    succeeded: int = 0
    """How many of them did."""


@dataclass(slots=True)
class DemoCounters:
    wave_runs: list[int] = field(default_factory=list)
    """Jobs at speed, by number."""
    start_seconds: float = 0.0
    """Seconds it took to start them, all in all."""
    max_rate: float = 0.0
    """Jobs a second, from the start of a wave to the end of the last of it."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from a start to its result, one after the other."""
    flow_states: dict[int, str] = field(default_factory=dict)
    """Runs of the flow, and what became of them."""
    approved: int = 0
    kill: WorkerKill | None = None
    ticks: int = 0
    """Of the schedule, that have started a run."""
    duplicate_ticks: int = 0
    """… that have started more than one."""
    missed_ticks: int = 0
    monitor_iterations: int = 0
    """Of the monitor."""
    job_states: dict[str, int] = field(default_factory=dict)
    """What all jobs came to."""
    retries: int = 0
    open_jobs: int = 0
    """Jobs at speed that have not ended."""
    duration: float = 0.0

    @property
    def ended_jobs(self) -> int:
        return sum(self.job_states.values())
