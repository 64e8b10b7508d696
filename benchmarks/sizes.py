"""Number of jobs and repetitions: for a full run, or small for a test run (`--quick`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Sizes:
    pairs: int = 5
    warm: int = 2_000
    chunk: int = 20_000  # jobs in one bulk call
    bulk_calls: int = 3
    singles: int = 500
    # Slow peers get fewer jobs: otherwise a round would take minutes.
    drain: Mapping[str, int] = field(
        default_factory=lambda: {
            "rota": 300_000,
            "graphile": 300_000,
            "pgqueuer": 100_000,
            "procrastinate": 5_000,
        }
    )
    latency: int = 300
    results: int = 300
    idle_seconds: int = 30
    kills: int = 48
    pooled_kills: int = 12  # each takes about twenty seconds
    backlog: int = 1_000_000
    history: int = 5_000_000
    retention: int = 1_000_000  # old jobs, some of which are removed meanwhile
    slice: int = 200_000  # jobs drained beside a backlog or a history
    under_snapshot: int = 200_000
    after_snapshot: int = 100_000
    graphs: int = 5_000  # runs of a graph of ten jobs
    wide: int = 10_000  # jobs in one run, including its two ends: Rota's maximum
    wide_drains: int = 3  # each takes a fraction of a second: a round is the median of several
    chain: int = 1_000
    diamonds: int = 300
    step_runs: int = 300  # runs of ten durable steps
    step_drains: int = 3
    imports: int = 15


FULL = Sizes()
QUICK = Sizes(
    pairs=3,
    warm=500,
    bulk_calls=1,
    singles=100,
    drain={"rota": 30_000, "graphile": 30_000, "pgqueuer": 10_000, "procrastinate": 500},
    latency=60,
    results=60,
    idle_seconds=10,  # two heartbeats of a worker
    kills=12,
    pooled_kills=6,
    backlog=100_000,
    history=200_000,
    retention=200_000,
    slice=20_000,
    under_snapshot=20_000,
    after_snapshot=10_000,
    graphs=500,
    wide=2_000,
    wide_drains=1,
    chain=100,
    diamonds=40,
    step_runs=30,
    step_drains=1,
    imports=5,
)
