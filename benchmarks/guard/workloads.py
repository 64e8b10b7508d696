"""Four workloads, each in a fresh database, and the cost of one run per job.

bulk      three calls of 20,000 jobs
single    2,000 jobs started one after the other, each awaited
drain     60,000 queued no-op jobs, one worker process
latency   300 times start and result(), with an idle worker in another process
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.guard.server import Server, process_cpu_ns
from benchmarks.guard.variants import Variant
from benchmarks.guard.wire import Wire, counted
from benchmarks.process import Child
from benchmarks.stage import STEP, Wrong

BULK_CALLS, BULK_JOBS = 3, 20_000
SINGLE_JOBS = 2_000
DRAIN_JOBS = 60_000
LATENCY_JOBS = 300
CONCURRENCY = 100
GAPS = {"shortest": 0.002, "longest": 0.004}
IDLE_SECONDS = 1.0
QUIET = "select not exists (select from rota.claims)"


@dataclass(frozen=True)
class Cost:
    """Cost of one run per job. Statements and round trips are 0 unless they were counted."""

    client_us: float
    server_us: float
    wal_bytes: float
    row_versions: float
    statements: float
    round_trips: float


@dataclass
class Run:
    """Workload of one variant in a database of its own."""

    server: Server
    variant: Variant
    database: str
    dsn: str
    wire: Wire | None
    cost: Cost | None = None

    def child(self) -> Child:
        return self.variant.child(self.dsn)

    @contextmanager
    def measured(self, jobs: int, children: Sequence[Child]) -> Iterator[None]:
        """Measure the block, which runs `jobs` jobs. Rows are counted after the children have ended."""
        wal = self.server.wal_bytes(self.database)
        before = self._counts(children)
        yield
        spent = [now - then for now, then in zip(self._counts(children), before, strict=True)]
        wal = self.server.wal_bytes(self.database) - wal
        client_ns, server_ns, statements, round_trips = spent
        self.cost = Cost(
            client_ns / 1000 / jobs,
            server_ns / 1000 / jobs,
            wal / jobs,
            0.0,
            statements / jobs,
            round_trips / jobs,
        )

    def _counts(self, children: Sequence[Child]) -> list[int]:
        wire = self.wire
        return [
            sum(process_cpu_ns(child.pid) for child in children),
            self.server.cpu_ns(),
            0 if wire is None else wire.statements,
            0 if wire is None else wire.round_trips,
        ]

    def expect(self, query: str, count: int) -> None:
        found = self.server.cluster.number(self.database, query)
        if found != count:
            raise Wrong(f"{self.variant.name}: `{query}` returned {found} instead of {count}")


def bulk(run: Run) -> int:
    warm = 2_000
    with run.child() as child:
        child.ask("enqueue", STEP, first=0, count=warm, calls=1)
        jobs = BULK_CALLS * BULK_JOBS
        with run.measured(jobs, [child]):
            child.ask("enqueue", STEP, first=warm, count=BULK_JOBS, calls=BULK_CALLS)
    run.expect("select count(*) from rota.jobs", warm + jobs)
    return warm + jobs


def single(run: Run) -> int:
    warm = 200
    with run.child() as child:
        child.ask("send", STEP, first=0, count=warm, shortest=0, longest=0)
        with run.measured(SINGLE_JOBS, [child]):
            child.ask("send", STEP, first=warm, count=SINGLE_JOBS, shortest=0, longest=0)
    run.expect("select count(*) from rota.jobs", warm + SINGLE_JOBS)
    return warm + SINGLE_JOBS


def drain(run: Run) -> int:
    with run.child() as child:
        child.ask("enqueue", STEP, first=0, count=DRAIN_JOBS // 3, calls=3)
    run.server.cluster.settle(run.database)
    with run.child() as worker:
        worker.tell("work", concurrency=CONCURRENCY, haste=True, marks=[DRAIN_JOBS], timed=False)
        with run.measured(DRAIN_JOBS, [worker]):
            worker.until("working", STEP)
            for answer in worker.answers(STEP):
                if answer.get("count") == DRAIN_JOBS:
                    break
            _wait_until_quiet(run)
        worker.tell("stop")
        ended = worker.until("done", STEP)
    if (ended["count"], ended["total"]) != (DRAIN_JOBS, sum(range(DRAIN_JOBS))):
        raise Wrong(f"{run.variant.name}: {ended['count']} executions, or a job ran twice")
    run.expect("select count(*) from rota.outcomes", DRAIN_JOBS)
    return DRAIN_JOBS


def latency(run: Run) -> int:
    warm = 20
    with run.child() as sender, run.child() as worker:
        worker.tell("work", concurrency=CONCURRENCY, haste=False, marks=[], timed=False)
        worker.until("working", STEP)
        time.sleep(IDLE_SECONDS)  # until it has registered, polled once and become idle
        sender.ask("results", STEP, first=0, count=warm, **GAPS)
        with run.measured(LATENCY_JOBS, [sender, worker]):
            sender.ask("results", STEP, first=warm, count=LATENCY_JOBS, **GAPS)
        worker.tell("stop")
        worker.until("done", STEP)
    run.expect("select count(*) from rota.outcomes", warm + LATENCY_JOBS)
    return warm + LATENCY_JOBS


def _wait_until_quiet(run: Run) -> None:
    deadline = time.monotonic() + STEP
    with run.server.cluster.connection(run.database) as connection:
        while (row := connection.execute(QUIET).fetchone()) is None or not row[0]:
            if time.monotonic() > deadline:
                raise Wrong(f"{run.variant.name}: claims were still open after {STEP:.0f} s")
            time.sleep(0.002)


WORKLOADS: dict[str, Callable[[Run], int]] = {
    "bulk": bulk,
    "single": single,
    "drain": drain,
    "latency": latency,
}


def measure(server: Server, variant: Variant, workload: str, template: str, *, wired: bool) -> Cost:
    """Run a workload once. With `wired`, count statements and round trips; ignore the CPU time then."""
    database = f"guard_{variant.name}"
    dsn = server.cluster.create(database, template)
    rows = server.row_versions(database)
    if wired:
        with counted(dsn) as wire:
            run = Run(server, variant, database, wire.dsn, wire)
            jobs = WORKLOADS[workload](run)
    else:
        run = Run(server, variant, database, dsn, None)
        jobs = WORKLOADS[workload](run)
    rows = server.row_versions(database) - rows
    server.cluster.drop(database)
    assert run.cost is not None
    return Cost(
        run.cost.client_us,
        run.cost.server_us,
        run.cost.wal_bytes,
        rows / jobs,
        run.cost.statements,
        run.cost.round_trips,
    )
