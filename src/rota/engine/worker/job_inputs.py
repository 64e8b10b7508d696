"""Inputs of claimed jobs: results of their predecessors, journal entries and trace links.

Each kind is read in one query for all jobs of a claim. A result that several jobs use is read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from rota.engine.db_clock import DatabaseClock
from rota.model.flow import is_optional
from rota.model.task import TaskDefinition
from rota.store import flows, steps, trace_links
from rota.store.jobs import ClaimedJob
from rota.store.query import Query
from rota.store.read import runs


class Sender(Protocol):
    """Connection that sends transactions in one pipeline, and returns the rows of each statement."""

    async def send(self, transactions: Sequence[Sequence[Query[Any]]]) -> list[list[list[Any]]]: ...


_ID_DECODER = msgspec.json.Decoder(dict[str, int])


async def load_inputs(
    jobs: Sequence[ClaimedJob],
    tasks: Mapping[str, TaskDefinition],
    connection: Sender,
) -> None:
    """Add the results of predecessors to the arguments of the jobs that take them."""
    with_inputs = [(job, _ID_DECODER.decode(job.inputs)) for job in jobs if job.inputs]
    if not with_inputs:
        return
    job_ids = sorted({id for _, ids in with_inputs for id in ids.values()})
    [[found]] = await connection.send([[flows.job_results(job_ids)]])
    results = dict(found)
    for job, ids in with_inputs:
        task = tasks[job.task]
        parts = [
            f'"{parameter}":{results.get(id) or "null"}'
            for parameter, id in ids.items()
            # A predecessor without a result: the parameter keeps its default, or is None.
            if id in results or not _may_be_omitted(task, parameter)
        ]
        own_args = job.args[1:-1].strip()
        job.args = "{" + ",".join([own_args, *parts] if own_args else parts) + "}"


async def load_journal(
    jobs: Sequence[ClaimedJob], connection: Sender, clock: DatabaseClock
) -> None:
    """Load the journal of jobs that have run steps before."""
    resumed = {job.job: job for job in jobs if job.has_steps}
    if not resumed:
        return
    for job in resumed.values():
        job.stored_entries = []
    [[rows, [now]]] = await connection.send(
        [[steps.read(list(resumed.values())), runs.database_time()]]
    )
    clock.set(now)
    for each in rows:
        entries = resumed[each.job].stored_entries
        assert entries is not None
        entries.append(each.entry)


async def load_trace_links(jobs: Sequence[ClaimedJob], connection: Sender) -> None:
    """Load, for traced jobs, the spans of the jobs they have waited for."""
    traced = {job.job: job for job in jobs if job.trace is not None and job.run is not None}
    if not traced:
        return
    [[found]] = await connection.send([[trace_links.read(list(traced))]])
    for job, trace in found:
        traced[job].trace_links = [*(traced[job].trace_links or ()), trace]


def _may_be_omitted(task: TaskDefinition, parameter: str) -> bool:
    return is_optional(task, parameter) and (
        task.skip_if is None or is_optional(task.skip_if, parameter)
    )
