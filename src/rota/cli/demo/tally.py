"""What a demo has seen, in figures: counted and measured, none of them written down beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Accident:
    """One worker is killed. Times are seconds since then; None: it has not happened yet."""

    worker: int
    jobs: int
    """So many it held."""
    noticed: float | None = None
    """It was found dead, and what it held went back."""
    monitor: float | None = None
    """Another instance ran the monitor."""
    recovered: float | None = None
    """The last of its jobs had ended."""
    heirs: tuple[int, ...] = ()
    """Workers that ended them."""
    succeeded: int = 0
    """How many of them did."""


@dataclass(slots=True)
class Tally:
    plain: list[int] = field(default_factory=list)
    """Jobs at speed, by number."""
    starting: float = 0.0
    """Seconds it took to start them, all in all."""
    fastest: float = 0.0
    """Jobs a second, from the start of a wave to the end of the last of it."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from a start to its result, one after the other."""
    flows: dict[int, str] = field(default_factory=dict)
    """Runs of the flow, and what became of them."""
    approved: int = 0
    accident: Accident | None = None
    ticks: int = 0
    """Of the schedule, that have started a run."""
    twice: int = 0
    """… that have started more than one."""
    missed: int = 0
    rounds: int = 0
    """Of the monitor."""
    states: dict[str, int] = field(default_factory=dict)
    """What all jobs came to."""
    retries: int = 0
    open: int = 0
    """Jobs at speed that have not ended."""
    lasted: float = 0.0

    @property
    def ended(self) -> int:
        return sum(self.states.values())
