"""Cancel or retry all runs that match a filter: count them first, then process them in batches.

Runs are processed from the latest to the earliest, each once. Runs that were started after the count are
not touched. Each run is changed and audited in its own transaction. An interrupted action keeps the changes
made so far and can be continued from there.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.errors import ArgumentError, RotaError, RunNotFound
from rota.operations.run_search import FetchRows, find_runs, with_kind
from rota.store.read import run_list
from rota.store.read.run_list import RunFilter

if TYPE_CHECKING:
    from rota.app.rota import Rota

BulkAction = Literal["cancel", "retry"]

ACTION_STATES: dict[BulkAction, tuple[str, ...]] = {
    "cancel": run_list.OPEN_STATES,
    "retry": run_list.FAILED_STATES,
}
"""States in which a run allows the action."""

MAX_COUNTED_RUNS = 10_000
"""Counting stops at this number."""

COUNT_SECONDS = 1.0
BATCH_RUNS = 200
BATCH_SECONDS = 2.0
"""Time limit of a batch; it may then be smaller than BATCH_RUNS."""

CONCURRENT_RUNS = 4


class RunCount(msgspec.Struct, frozen=True):
    count: int
    is_exact: bool
    """False if there may be more runs."""
    last_id: int
    """Last id assigned before the count. Later runs are not counted and not touched."""


class BulkResult(msgspec.Struct, frozen=True):
    done: int
    skipped: int
    """Runs that had changed their state in the meantime."""
    next_id: int | None
    """Id at which the next batch begins; None if all are done."""


def narrow_filter(app: Rota, action: BulkAction, run_filter: RunFilter) -> RunFilter:
    """Return the filter restricted to states that allow the action; raise ArgumentError if none remains."""
    possible = ACTION_STATES[action]
    requested = run_filter.states or possible
    states = tuple(each for each in requested if each in possible)
    if not states:
        participle = "retried" if action == "retry" else "cancelled"
        raise ArgumentError(
            f"a run in state {requested[0]} cannot be {participle}; filter by {', '.join(possible)}"
        )
    return with_kind(app, msgspec.structs.replace(run_filter, states=states))


async def count_runs(
    app: Rota, fetch: FetchRows, action: BulkAction, run_filter: RunFilter
) -> RunCount:
    """Return the number of matching runs, at most MAX_COUNTED_RUNS."""
    # Read the last id first: runs that start later are not included.
    [[large_queue]] = await fetch(run_list.large_queue(None))
    found = await find_runs(
        fetch,
        narrow_filter(app, action, run_filter),
        MAX_COUNTED_RUNS,
        before=large_queue.last_id + 1,
        seconds=COUNT_SECONDS,
    )
    return RunCount(len(found.positions), found.next_id is None, large_queue.last_id)


async def apply_batch(
    app: Rota,
    fetch: FetchRows,
    action: BulkAction,
    run_filter: RunFilter,
    *,
    last_id: int,
    before: int | None = None,
    by: str | None = None,
) -> BulkResult:
    """Apply the action to one batch, the latest runs first.

    `last_id` is the bound from the count; `before` is `next_id` of the previous batch.
    """
    began = time.monotonic()
    before_id = min(last_id + 1, last_id + 1 if before is None else before)
    found = await find_runs(
        fetch, narrow_filter(app, action, run_filter), BATCH_RUNS, before=before_id
    )
    done = skipped = 0
    runs = [each.id for each in found.positions]
    while runs:
        group, runs = runs[:CONCURRENT_RUNS], runs[CONCURRENT_RUNS:]
        results = await asyncio.gather(*(_apply_action(app, action, run, by) for run in group))
        done += sum(results)
        skipped += len(results) - sum(results)
        if runs and time.monotonic() - began > BATCH_SECONDS:
            return BulkResult(done, skipped, group[-1])
    return BulkResult(done, skipped, found.next_id)


async def _apply_action(app: Rota, action: BulkAction, run: int, by: str | None) -> bool:
    """True if the action was applied."""
    try:
        if action == "cancel":
            return await app.run(run).cancel(by=by) in ("cancelled", "requested")
        await app.run(run).retry(by=by)
    except RunNotFound:
        return False  # deleted in the meantime
    except RotaError as error:
        if type(error) is not RotaError:
            raise
        return False  # retried or succeeded in the meantime
    return True
