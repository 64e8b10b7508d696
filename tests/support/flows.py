"""Runs of many jobs, started and moved directly in the store.

A graph is a mapping of names to the names of their predecessors. Jobs have tasks `f.<name>`, so that a
run can be forked from one of them. The run itself waits for all jobs without successors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.errors import LockNotAvailable

from rota.store import claims, flows, jobs, runs
from rota.store.array_literals import array_items
from rota.store.flows import CallingJob, JobColumns, StartRun
from rota.store.jobs import MoveResult, StartedJob
from rota.store.runs import ReleaseResult
from support.stage import Batch, Connection, Stage

Parents = Mapping[str, Sequence[str]]

DIAMOND: Parents = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


@dataclass(frozen=True)
class StartedRun:
    """Started run: its id, and its jobs by name."""

    run: int
    jobs: dict[str, int]

    def __getitem__(self, name: str) -> int:
        return self.jobs[name]


def run_of(
    parents: Parents, rules: Mapping[str, str] | None = None, *, flow: str | None = "f", **how: Any
) -> StartRun:
    """Return the graph as the store expects it. A name must follow its predecessors."""
    numbers = {name: number for number, name in enumerate(parents, 1)}
    children: dict[str, list[int]] = {name: [] for name in parents}
    for name, waits_for in parents.items():
        for parent in waits_for:
            children[parent].append(numbers[name])
    sinks = [name for name in parents if not children[name]]
    for name in sinks:
        children[name].append(0)
    many = len(parents)
    columns = JobColumns(
        tasks=array_items(f"f.{name}" for name in parents),
        queues=",".join(["default"] * many),
        priorities=",".join(["0"] * many),
        args=array_items(["{}"] * many),
        options=",".join(["NULL"] * many),
        rules=",".join((rules or {}).get(name, "all_succeeded") for name in parents),
        predecessor_counts=",".join(str(len(each)) for each in parents.values()),
        successors=array_items(f"{{{','.join(map(str, each))}}}" for each in children.values()),
        input_jobs=",".join(["NULL"] * many),
    )
    opened = how.pop("open", len(sinks))
    return StartRun(flow=flow, input="{}", size=many, open_jobs=opened, jobs=columns, **how)


async def start(
    stage: Stage,
    parents: Parents,
    rules: Mapping[str, str] | None = None,
    on: Connection | None = None,
    **how: Any,
) -> StartedRun:
    [started] = await stage.run(flows.start([run_of(parents, rules, **how)], notify=False), on)
    return await load_run(stage, started.run, parents)


async def load_run(stage: Stage, run: int, parents: Parents) -> StartedRun:
    members = await stage.one("select jobs from rota.runs where id = %s", run)
    return StartedRun(run, dict(zip(parents, members, strict=True)))


async def start_child_runs(
    stage: Stage,
    batch: Batch,
    many: int,
    parts: Sequence[StartRun] = (),
    number: int = 0,
    on: Connection | None = None,
) -> list[StartedJob]:
    """Start calls of the first job of a batch, as the engine does: `many` tasks, and flows as parts of
    the run."""
    names = [f"call{each}" for each in range(many)]
    whole = run_of(dict.fromkeys(names, ()), flow=None, open=many + len(parts))
    job = batch.members[0]
    caller = CallingJob(job.job, batch.id, batch.worker, number, job.attempt)
    started: list[StartedJob]
    _, started = await stage.together(
        claims.lock(batch.worker, [batch.id]),
        flows.start([whole, *parts], notify=False, caller=caller),
        on=on,
    )
    return started


async def claim(
    stage: Stage, worker: int, limit: int = 100, on: Connection | None = None, names: Any = None
) -> Batch:
    """Claim jobs of these graphs, of any task."""
    tasks = await stage.sql("select distinct task from rota.jobs")
    wanted = tasks if names is None else [f"f.{name}" for name in names]
    return await stage.claim(worker, limit, tasks=wanted, on=on)


async def claim_only(stage: Stage, worker: int, *names: str) -> Batch:
    batch = await claim(stage, worker, len(names), names=names)
    assert len(batch.jobs) == len(names), f"of {names}, these were ready: {batch.jobs}"
    return batch


async def end(
    stage: Stage,
    batch: Batch,
    state: str = "succeeded",
    given: Sequence[int] | None = None,
    on: Connection | None = None,
) -> MoveResult:
    """Finish jobs of a batch, as the engine does."""
    which = list(batch.jobs if given is None else given)
    many = len(which)
    moved: MoveResult
    if state == "succeeded":
        [moved] = await stage.run(
            jobs.complete(
                batch.worker, [batch.id] * many, which, [None] * many, [0.1] * many, [True] * many
            ),
            on,
        )
        return moved
    error = None if state == "skipped" else '{"type": "E"}'
    [moved] = await stage.run(
        jobs.finish(
            *(batch.worker, [batch.id] * many, which, [state] * many),
            *([error] * many, [0.1] * many),
        ),
        on,
    )
    return moved


async def run_one(stage: Stage, worker: int, name: str, state: str = "succeeded") -> MoveResult:
    """Run the one queued job of this name to its end."""
    return await end(stage, await claim_only(stage, worker, name), state)


async def release_all_pending(stage: Stage, on: Connection | None = None) -> list[ReleaseResult]:
    """Release pending successors until none is left."""
    found = []
    while True:
        [settled] = await stage.run(runs.release_pending(1000), on)
        found.append(settled)
        if not settled.pending:
            return found


async def outcomes(stage: Stage, run: StartedRun) -> dict[str, str]:
    """Return the state of each job by name, and of the run under "run"."""
    ids = {id: name for name, id in run.jobs.items()}
    found = await stage.sql(
        "select job, state from rota.job_state where job = any(%s)", list(run.jobs.values())
    )
    answer = {ids[job]: state for job, state in found}
    answer["run"] = await stage.one("select state from rota.run_state where run = %s", run.run)
    return answer


async def waiting(stage: Stage) -> dict[int, tuple[int, int, int, int]]:
    """Return the counts of open, failed, cancelled and skipped predecessors of each waiting job."""
    rows = await stage.sql("select job, open, failed, cancelled, skipped from rota.waiting")
    return {job: tuple(rest) for job, *rest in rows}


# Expected results: the rules as they are documented, not as they are programmed

GOOD = {"succeeded"}
ON_PURPOSE = {"skipped"}
BY_FAILURE = {"failed", "expired", "skipped by failure"}
BY_CANCEL = {"cancelled", "skipped by cancel"}


def should_run(rule: str, parents: Sequence[str]) -> bool:
    """True if a job runs, given the states of its predecessors."""
    came_to = set(parents)
    match rule:
        case "all_succeeded":
            return came_to <= GOOD
        case "none_failed":
            return came_to <= GOOD | ON_PURPOSE
        case "all_done":
            return True
        case "any_failed":
            return bool(came_to & BY_FAILURE)
    raise AssertionError(rule)


def expected_skip(parents: Sequence[str]) -> str:
    """Return the state of a job that does not run."""
    if BY_FAILURE & set(parents):
        return "skipped by failure"
    return "skipped by cancel" if BY_CANCEL & set(parents) else "skipped"


def expected_run_state(jobs: Sequence[str], wished_cancelled: bool) -> str:
    failed = bool({"failed", "expired"} & set(jobs))
    cancelled = "cancelled" in jobs
    if wished_cancelled and (failed or cancelled):
        return "cancelled"
    if failed:
        return "failed"
    return "cancelled" if cancelled else "succeeded"


def jobs_to_retry(parents: Parents, came_to: Mapping[str, str]) -> set[str]:
    """Return the jobs that `retry` runs again: those that did not succeed, and all their successors."""
    found = {name for name, state in came_to.items() if state not in GOOD | ON_PURPOSE}
    for name, waits_for in parents.items():
        if found & set(waits_for):
            found.add(name)
    return found


async def outcomes_with_cause(stage: Stage, run: StartedRun) -> dict[str, str]:
    """Return the state of each job by name, with the cause of a skip."""
    rows = await stage.sql(
        "select job, case when state = 'skipped' and error is not null then"
        " case when error->>'message' like '%% failed' then 'skipped by failure'"
        " else 'skipped by cancel' end else state::text end"
        " from rota.outcomes where job = any(%s)",
        list(run.jobs.values()),
    )
    states = dict(rows)
    return {name: states[id] for name, id in run.jobs.items() if id in states}


async def cancel(stage: Stage, run: int, on: Connection | None = None) -> str | None:
    [answer] = await stage.run(runs.cancel(run), on or stage.watch)
    return answer


async def retry(stage: Stage, run: int, on: Connection | None = None) -> list[str] | None:
    [answer] = await stage.run(runs.retry(run), on)
    return answer


async def is_free(stage: Stage, waiting: int) -> bool:
    try:
        async with stage.watch.transaction():
            await stage.sql(f"select from rota.waiting where job = {waiting} for update nowait")
    except LockNotAvailable:
        return False
    return True
