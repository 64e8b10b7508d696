"""Explanation of a job or run that does not run: the causes of its wait, down to the root causes.

A job that waits for predecessors is held up by those of them that wait for no other job. A job that has
started child runs is held up by the causes that hold up these runs. Both are followed up to a limit.
Root causes are listed first, because an operator has to act on them or wait for them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from rota.engine.diagnosis.job_reasons import (
    MAX_COUNTED_JOBS,
    MAX_LAG_SECONDS,
    Situation,
    contended_lock,
    reasons_for,
)
from rota.model import codec
from rota.model.explanation import Explanation, ExplanationReason, status_of
from rota.model.settings import Settings
from rota.store.query import Query
from rota.store.read import explain as read_explain
from rota.store.read.explain import CallingRow, ExplainedJob, JobSituationRow, PredecessorRow

Fetch = Callable[..., Awaitable[list[Any]]]
"""Returns the rows of each query."""

MAX_ROOT_JOBS = 50
"""Root jobs that are examined."""

MAX_CALL_DEPTH = 5
"""Levels of child runs that are followed."""

MAX_NAMED_JOBS = 3
"""Jobs that are named if a job waits for many."""

MAX_LOCKS = 3
"""Awaited locks that are listed for a running job."""

MAX_QUEUE_POSITIONS = 5
"""Jobs for which the queue position is computed: each scans a part of its queue."""


async def explain(fetch: Fetch, id: int, settings: Settings) -> Explanation | None:
    """Explain a run or job. Return None if there is none with this id."""
    [subjects] = await fetch(read_explain.subject(id))
    if not subjects:
        return None
    subject: ExplainedJob = subjects[0]
    if subject.state is not None:
        return _explanation(subject, [_ended_reason(subject)], 0)
    explainer = _Explainer(fetch, subject, settings)
    await explainer.run()
    if any(each.code == "ended" and each.job == id for each in explainer.found):
        # It ended meanwhile: read its result again, with the error and the remedy.
        [subjects] = await fetch(read_explain.subject(id))
        if subjects and subjects[0].state is not None:
            return _explanation(subjects[0], [_ended_reason(subjects[0])], 0)
    return _explanation(subject, explainer.found, explainer.omitted_jobs)


def sequential_fetch(run: Callable[[Query[Any]], Awaitable[list[Any]]]) -> Fetch:
    """Return a `Fetch` that runs the queries one after the other."""

    async def fetch(*queries: Query[Any]) -> list[Any]:
        return [await run(each) for each in queries]

    return fetch


class _Explainer:
    def __init__(self, fetch: Fetch, subject: ExplainedJob, settings: Settings) -> None:
        self._fetch = fetch
        self._subject = subject
        self._settings = settings
        self._budget = MAX_ROOT_JOBS
        self.found: list[ExplanationReason] = []
        self.omitted_jobs = 0

    async def run(self) -> None:
        subject = self._subject
        if subject.is_flow:
            await self._explain_run(subject.run, None, 0)
        elif subject.run == subject.id:
            await self._explain_jobs([subject.id], None, 0)
        else:
            await self._explain_run(subject.run, subject.id, 0)
        if not self.found:
            self.found.append(await self._no_cause_reason())

    async def _explain_run(self, run: int, job: int | None, depth: int) -> None:
        [links] = await self._fetch(read_explain.predecessors(run, job, max(self._budget, 1)))
        roots = [each.job for each in links if each.is_root]
        direct = [each for each in links if each.is_direct]
        if direct and job is not None:
            await self._add_predecessors_reason(direct, job)
        if links and links[0].is_root:
            self.omitted_jobs += links[0].total - len(roots)
        self._budget -= len(roots)
        await self._explain_jobs(roots, run if job is None else None, depth)

    async def _add_predecessors_reason(self, direct: Sequence[PredecessorRow], job: int) -> None:
        """Add the predecessors the job waits for directly, which are not yet the root cause."""
        named: list[JobSituationRow]
        [job_row], named = await self._fetch(
            read_explain.job_states([job]),
            read_explain.job_states([each.job for each in direct[:MAX_NAMED_JOBS]]),
        )
        message = ", ".join(f"{each.task} (job {each.job}, {each.state})" for each in named)
        if direct[0].total > MAX_NAMED_JOBS:
            message += f" and {direct[0].total - MAX_NAMED_JOBS:,} more"
        self.found.append(
            ExplanationReason(
                code="limit" if job_row.is_child else "predecessors",
                message=f"it is a child run of a job that limits its concurrency, and "
                f"waits for {message}"
                if job_row.is_child
                else f"it waits for {message}",
                kind="job",
                subject=str(direct[0].job),
                job=job,
                since=job_row.since,
            )
        )

    async def _explain_jobs(self, jobs: Sequence[int], run: int | None, depth: int) -> None:
        """Add the reasons for each of these jobs. With `run`, also those of the run's open child runs."""
        if not jobs and run is None:
            return
        job_rows, waits, children = await self._fetch(
            read_explain.job_states(jobs),
            read_explain.open_steps(jobs),
            read_explain.open_child_runs(jobs, run, max(self._budget, 1)),
        )
        situation = await self._load_situation(job_rows, waits)
        await self._explain_locks(job_rows)
        callers = {each.parent for each in children if each.parent in jobs}
        for job in job_rows:
            if job.job in callers and job.state == "running" and _is_worker_alive(job, situation):
                own_children = [each for each in children if each.parent == job.job]
                self.found.append(self._children_reason(job, own_children))
            else:
                self.found += reasons_for(job, situation, asked_about=self._subject.id)
        for each in children:
            if depth >= MAX_CALL_DEPTH or self._budget <= 0:
                self.omitted_jobs += 1
            else:
                await self._explain_run(each.run, None, depth + 1)

    async def _explain_locks(self, job_rows: Sequence[JobSituationRow]) -> None:
        """Add the locks that others wait for, if the job that was asked about is running."""
        if [(each.job, each.state) for each in job_rows] == [(self._subject.id, "running")]:
            [locks] = await self._fetch(read_explain.awaited_locks(MAX_LOCKS))
            self.found += [contended_lock(each, self._subject.id) for each in locks]

    async def _load_situation(
        self, job_rows: Sequence[JobSituationRow], waits: Sequence[read_explain.WaitingRow]
    ) -> Situation:
        silent = self._settings.dead_after / 2
        pairs = sorted({(each.queue, each.task) for each in job_rows})
        queued = [
            each.job for each in job_rows if each.state == "queued" and each.suspicion is None
        ]
        eligibility, positions = await self._fetch(
            read_explain.eligible_workers(pairs, silent, MAX_LAG_SECONDS),
            read_explain.queue_positions(queued[:MAX_QUEUE_POSITIONS], MAX_COUNTED_JOBS),
        )
        by_job: dict[int, list[read_explain.WaitingRow]] = {}
        for each in waits:
            by_job.setdefault(each.job, []).append(each)
        return Situation(
            self._subject.now,
            self._settings.dead_after,
            {(each.queue, each.task): each for each in eligibility},
            {each.job: each for each in positions},
            by_job,
        )

    def _children_reason(
        self, job: JobSituationRow, children: Sequence[CallingRow]
    ) -> ExplanationReason:
        name = "it" if job.job == self._subject.id else f"job {job.job} ({job.task})"
        named = ", ".join(
            f"run {each.run}{f' of flow {each.flow}' if each.flow else ''}"
            for each in children[:MAX_NAMED_JOBS]
        )
        more = (
            f" and {len(children) - MAX_NAMED_JOBS:,} more"
            if len(children) > MAX_NAMED_JOBS
            else ""
        )
        return ExplanationReason(
            code="children",
            message=f"{name} is on worker {job.worker} and waits for its child runs: {named}{more}",
            kind="run",
            subject=str(children[0].run),
            job=job.job,
            since=children[0].created,
        )

    async def _no_cause_reason(self) -> ExplanationReason:
        """Return the reason if no cause was found: all predecessors have ended, or the job is moving."""
        [[pending_releases]] = await self._fetch(read_explain.has_pending_releases())
        message = (
            "all its predecessors have ended; a live worker releases it with its next heartbeat"
            if pending_releases
            else "it has just changed its state; run explain again"
        )
        id = self._subject.id
        return ExplanationReason(
            code="releasing" if pending_releases else "moving",
            message=message,
            kind="run" if self._subject.is_flow else "job",
            subject=str(id),
        )


def _is_worker_alive(job: JobSituationRow, situation: Situation) -> bool:
    """True if the job's worker is alive, so that the job waits for its child runs."""
    return (
        job.worker_state in ("active", "draining")
        and (job.silent_seconds or 0.0) < situation.dead_after / 2
        and job.cancel_requested is None
    )


def _ended_reason(subject: ExplainedJob) -> ExplanationReason:
    error = codec.decode_error(subject.error)
    messages = {
        "succeeded": "it has succeeded",
        "failed": f"it has failed{f' with {error.type}' if error.type else ''}",
        "cancelled": "it was cancelled",
        "expired": "it expired before a worker claimed it",
        "skipped": "it was skipped because of its predecessors' outcomes, or by its skip_if",
    }
    may_retry = subject.state in ("failed", "cancelled", "expired")
    return ExplanationReason(
        code="ended",
        message=messages[subject.state or ""],
        kind="run" if subject.is_flow else "job",
        subject=str(subject.id),
        job=None if subject.is_flow else subject.id,
        since=subject.at,
        remedy=f"`rota retry {subject.run}` retries it" if may_retry else None,
        detail=error.message or None,
    )


def _explanation(
    subject: ExplainedJob, found: list[ExplanationReason], omitted_jobs: int
) -> Explanation:
    merged = _merge_same(found)
    return Explanation(
        id=subject.id,
        run=subject.run,
        name=subject.name,
        is_flow=subject.is_flow,
        status=status_of(merged, None if subject.is_flow else subject.id),
        reasons=sorted(merged, key=lambda each: each.rank),
        omitted_jobs=omitted_jobs,
        now=subject.now,
    )


def _merge_same(found: Sequence[ExplanationReason]) -> list[ExplanationReason]:
    """Merge the same reason of several jobs into one, with the first job as the example."""
    first: dict[tuple[object, ...], ExplanationReason] = {}
    for each in found:
        is_job_specific = each.kind == "job" and each.code not in ("predecessors", "limit", "ended")
        about = "" if is_job_specific else each.subject
        key = (each.code, each.kind, about, each.is_stuck)
        known = first.get(key)
        first[key] = (
            each if known is None else msgspec.structs.replace(known, jobs=known.jobs + each.jobs)
        )
    return list(first.values())
