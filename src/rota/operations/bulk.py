"""Operations on many runs: count the runs that match, then cancel or retry them in batches.

Runs are processed from the latest to the earliest, each once. Runs that were started after the count are
not touched. Each run is changed and audited in its own transaction. An interrupted action keeps the changes
made so far and can be continued from there.
"""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError, RotaError, RunNotFound
from rota.model.access import Role
from rota.model.document import Id
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    MAX_INT64,
    Cursor,
    IdText,
    Next,
    decode_id_cursor,
    encode_cursor,
)
from rota.operations.run_search import RunFilterQuery, build_run_filter, find_runs
from rota.store.read import run_list
from rota.store.read.run_list import RunFilter

group = OperationGroup("runs")

BulkAction = Literal["cancel", "retry"]

ACTION_STATES: dict[BulkAction, tuple[str, ...]] = {
    "cancel": run_list.OPEN_STATES,
    "retry": run_list.FAILED_STATES,
}
"""States in which a run allows the action."""

MAX_COUNTED_RUNS = 10_000
"""Counting stops at this number."""

MAX_IDS = 500
COUNT_SECONDS = 1.0
BATCH_RUNS = 200
BATCH_SECONDS = 2.0
"""Time limit of a batch; it may then be smaller than BATCH_RUNS."""

CONCURRENT_RUNS = 4


class RunCountQuery(RunFilterQuery):
    action: Annotated[
        BulkAction, Meta(description="Count the runs that this action applies to.")
    ] = "cancel"


class RunCountDocument(msgspec.Struct, frozen=True):
    count: int
    exact: Annotated[bool, Meta(description="False if `count` is a lower bound.")]
    upto: Annotated[
        Id, Meta(description="Last id that was counted. The action ignores later runs.")
    ]


class BulkRequest(RunFilterQuery):
    """Matching runs to act on: those up to the id `upto`, or those in `ids`."""

    upto: Annotated[IdText, Meta(description="Value of `upto` from GET /runs/count.")] | None = None
    ids: (
        Annotated[list[IdText], Meta(min_length=1, max_length=MAX_IDS, description="Ids of runs.")]
        | None
    ) = None
    cursor: Cursor | None = None


class BulkDocument(msgspec.Struct, frozen=True):
    done: Annotated[int, Meta(description="Runs that were cancelled, asked to stop, or retried.")]
    skipped: Annotated[int, Meta(description="Runs that changed state or were deleted before.")]
    next: Annotated[Next, Meta(description="Cursor of the next batch; null after the last.")] | None


@group.operation("GET /runs/count", Role.VIEWER)
async def count_runs(context: OperationContext, query: RunCountQuery) -> RunCountDocument:
    """Count the matching runs that `action` applies to. A large count is a lower bound."""
    run_filter = _narrow_filter(query.action, build_run_filter(context, query))
    # Read the last id first: runs that start later are not included.
    [[large_queue]] = await context.read(run_list.large_queue(None))
    found = await find_runs(
        context.read,
        run_filter,
        MAX_COUNTED_RUNS,
        before=large_queue.last_id + 1,
        seconds=COUNT_SECONDS,
    )
    return RunCountDocument(len(found.positions), found.next_id is None, large_queue.last_id)


@group.operation("POST /runs/cancel", Role.OPERATOR, audit="cancel run")
async def cancel_runs(context: OperationContext, body: BulkRequest) -> BulkDocument:
    """Cancel a batch of matching runs, the latest first. Repeat with `cursor` = `next` until it is null."""
    return await _apply_batch(context, "cancel", body)


@group.operation("POST /runs/retry", Role.OPERATOR, audit="retry run")
async def retry_runs(context: OperationContext, body: BulkRequest) -> BulkDocument:
    """Retry a batch of matching runs, the latest first. Repeat with `cursor` = `next` until it is null."""
    return await _apply_batch(context, "retry", body)


async def _apply_batch(
    context: OperationContext, action: BulkAction, body: BulkRequest
) -> BulkDocument:
    if (body.upto is None) == (body.ids is None):
        raise ArgumentError("pass `upto`, from GET /runs/count, or `ids`, but not both")
    run_filter = _narrow_filter(action, build_run_filter(context, body, body.ids))
    began = time.monotonic()
    upto = MAX_INT64 - 1 if body.upto is None else min(int(body.upto), MAX_INT64 - 1)
    before = min(upto + 1, decode_id_cursor(body.cursor, MAX_INT64))
    found = await find_runs(context.read, run_filter, BATCH_RUNS, before=before)
    done = skipped = 0
    runs = [each.id for each in found.positions]
    next_id = found.next_id
    while runs:
        group, runs = runs[:CONCURRENT_RUNS], runs[CONCURRENT_RUNS:]
        results = await asyncio.gather(*(_apply_action(context, action, run) for run in group))
        done += sum(results)
        skipped += len(results) - sum(results)
        if runs and time.monotonic() - began > BATCH_SECONDS:
            next_id, runs = group[-1], []
    return BulkDocument(done, skipped, None if next_id is None else encode_cursor(str(next_id)))


def _narrow_filter(action: BulkAction, run_filter: RunFilter) -> RunFilter:
    """Return the filter restricted to states that allow the action; raise ArgumentError if none remains."""
    possible = ACTION_STATES[action]
    requested = run_filter.states or possible
    states = tuple(each for each in requested if each in possible)
    if not states:
        participle = "retried" if action == "retry" else "cancelled"
        raise ArgumentError(
            f"a run in state {requested[0]} cannot be {participle}; filter by {', '.join(possible)}"
        )
    return msgspec.structs.replace(run_filter, states=states)


async def _apply_action(context: OperationContext, action: BulkAction, run: int) -> bool:
    """True if the action was applied."""
    found = context.app.run(run)
    try:
        if action == "cancel":
            return await found.cancel(by=context.caller.name) in ("cancelled", "requested")
        await found.retry(by=context.caller.name)
    except RunNotFound:
        return False  # deleted in the meantime
    except RotaError as error:
        if type(error) is not RotaError:
            raise
        return False  # retried or succeeded in the meantime
    return True
