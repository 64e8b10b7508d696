"""Contenders: how each is started, and queries on its tables after the work.

`quiet` is queried in a loop after the last handler has run, so it must be cheap on a table full of dead
rows. The other queries run outside of any measurement.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.peers import PeerMissing, node_peers, python_peers
from benchmarks.places import CHILDREN, NODE
from benchmarks.process import Child

PEERS = ("graphile", "pgqueuer", "procrastinate")
DURABLE = ("absurd", "dbos")  # only for durable steps
STEPS = 10  # per run


@dataclass(frozen=True, kw_only=True)
class Contender:
    name: str
    command: tuple[str, ...]
    concurrency: int = 1
    jobs: int = 1  # per number
    slowest: int = 1000  # jobs a second; a slower drain is aborted as hung
    environment: Mapping[str, str] = field(default_factory=dict)
    quiet: str = ""  # true when no completion is outstanding
    waiting: str = ""  # jobs not finished
    finished: str | None = None  # distinct jobs finished; None: the peer keeps no history

    def child(self, dsn: str) -> Child:
        return Child(self.name, self.command, {**self.environment, "BENCH_DSN": dsn})


def rota() -> Contender:
    return Contender(
        name="rota",
        command=(sys.executable, str(CHILDREN / "run_rota.py")),
        concurrency=100,
        quiet="select not exists (select from rota.claims)",
        waiting="""
            select (select count(*) from rota.queued)
                 + (select coalesce(sum(cardinality(jobs)), 0) from rota.claims)""",
        finished="select count(*) from rota.outcomes where state = 'succeeded'",
    )


def flows(shape: str, jobs: int) -> Contender:
    """Return Rota with a graph of `jobs` jobs (see children/shapes.py) in place of each job.

    A run also has an outcome, so the records are counted by job.
    """
    return replace(
        rota(),
        name=f"rota {shape}",
        command=(sys.executable, str(CHILDREN / "run_flows.py")),
        jobs=jobs,
        environment={"BENCH_SHAPE": shape, "BENCH_JOBS": str(jobs)},
        quiet=(
            "select not exists (select from rota.claims) and not exists (select from "
            "rota.pending_releases)"
        ),
        waiting="""
            select (select count(*) from rota.queued)
                 + (select count(*) from rota.waiting)
                 + (select count(*) from rota.sleeping)
                 + (select coalesce(sum(cardinality(jobs)), 0) from rota.claims)""",
        finished="""
            select count(*) from rota.jobs join rota.outcomes on outcomes.job = jobs.id
             where outcomes.state = 'succeeded'""",
    )


def steps() -> Contender:
    """Return Rota with a job of durable steps. Steps are counted and recorded."""
    return replace(
        rota(),
        command=(sys.executable, str(CHILDREN / "run_steps.py")),
        jobs=STEPS,
        environment={"BENCH_STEPS": str(STEPS)},
        waiting="""
            select (select count(*) from rota.queued)
                 + (select count(*) from rota.sleeping)
                 + (select coalesce(sum(cardinality(jobs)), 0) from rota.claims)""",
        finished="""
            select count(steps.result) from rota.steps join rota.outcomes on outcomes.job = steps.job
             where outcomes.state = 'succeeded'""",
    )


def plain() -> Contender:
    """Return a baseline for bulk enqueuing: rows inserted into a table with one index, without a queue."""
    return Contender(
        name="plain INSERT",
        command=(sys.executable, str(CHILDREN / "run_plain.py")),
        waiting="select count(*) from bare_jobs",
    )


def peer(name: str) -> Contender:
    """Return the peer, installed if needed; raise PeerMissing if it is not available."""
    match name:
        case "graphile":
            return _graphile(node_peers())
        case "pgqueuer":
            return _pgqueuer(python_peers())
        case "procrastinate":
            return _procrastinate(python_peers())
        case "absurd":
            return _absurd(python_peers())
        case "dbos":
            return _dbos(python_peers())
    raise PeerMissing(f"unknown peer; known: {', '.join((*PEERS, *DURABLE))}")


def _graphile(node: Path) -> Contender:
    return Contender(
        name="graphile",
        command=(str(node), str(CHILDREN / "run_graphile.mjs")),
        concurrency=24,
        environment={"BENCH_NODE": str(NODE)},
        quiet="select not exists (select from graphile_worker._private_jobs)",
        waiting="select count(*) from graphile_worker._private_jobs",
    )


def _pgqueuer(python: Path) -> Contender:
    return Contender(
        name="pgqueuer",
        command=(str(python), str(CHILDREN / "run_pgqueuer.py")),
        quiet="select not exists (select from pgqueuer where status = 'picked')",
        waiting="select count(*) from pgqueuer",
        finished="select count(distinct job_id) from pgqueuer_log where status = 'successful'",
    )


def _procrastinate(python: Path) -> Contender:
    return Contender(
        name="procrastinate",
        command=(str(python), str(CHILDREN / "run_procrastinate.py")),
        concurrency=10,
        slowest=50,
        quiet="select not exists (select from procrastinate_jobs where status = 'doing')",
        waiting="select count(*) from procrastinate_jobs where status in ('todo', 'doing')",
        finished="select count(*) from procrastinate_jobs where status = 'succeeded'",
    )


def _absurd(python: Path) -> Contender:
    return Contender(
        name="absurd",
        command=(str(python), str(CHILDREN / "run_absurd.py")),
        concurrency=10,
        jobs=STEPS,
        slowest=50,
        environment={"BENCH_STEPS": str(STEPS)},
        quiet="select not exists (select from absurd.t_default where state in ('pending', 'running'))",
        waiting="select count(*) from absurd.t_default where state <> 'completed'",
        finished="""
            select count(*) from absurd.c_default join absurd.t_default using (task_id)
             where c_default.status = 'committed' and t_default.state = 'completed'""",
    )


def _dbos(python: Path) -> Contender:
    return Contender(
        name="dbos",
        command=(str(python), str(CHILDREN / "run_dbos.py")),
        jobs=STEPS,
        slowest=50,
        environment={"BENCH_STEPS": str(STEPS)},
        quiet="""
            select not exists (
                   select from dbos.workflow_status where status in ('ENQUEUED', 'PENDING'))""",
        waiting="select count(*) from dbos.workflow_status where status <> 'SUCCESS'",
        finished="""
            select count(operation_outputs.output)
              from dbos.operation_outputs join dbos.workflow_status using (workflow_uuid)
             where workflow_status.status = 'SUCCESS'""",
    )
