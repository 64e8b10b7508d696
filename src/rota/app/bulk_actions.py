"""Cancel, or try again, whatever matches: counted first, then done portion by portion.

Runs are gone through from the latest to the earliest, each once, and none that was started after they were
counted. Each is done in a transaction of its own and written down as if it had been done alone; whoever is
stopped in between has done what he has, and goes on from there.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.app.run_search import FetchRows, find_runs, with_kind
from rota.errors import ArgumentError, RotaError, RunNotFound
from rota.store.read import run_list
from rota.store.read.run_list import RunFilter

if TYPE_CHECKING:
    from rota.app.rota import Rota

BulkAction = Literal["cancel", "retry"]

ACTION_STATES: dict[BulkAction, tuple[str, ...]] = {
    "cancel": run_list.OPEN_STATES,
    "retry": run_list.FAILED_STATES,
}
"""In which a run can be for that."""

MAX_COUNTED_RUNS = 10_000
"""More are not counted."""

COUNT_SECONDS = 1.0
BATCH_RUNS = 200
BATCH_SECONDS = 2.0
"""Seconds after which a portion ends, however small it is."""

CONCURRENT_RUNS = 4


class RunCount(msgspec.Struct, frozen=True):
    count: int
    is_exact: bool
    """There are no more; else there may be."""
    last_id: int
    """The last id that had been given: what comes later was not counted, and is not touched."""


class BulkResult(msgspec.Struct, frozen=True):
    done: int
    skipped: int
    """It was too late for these, or somebody else had done it."""
    next_id: int | None
    """Where the next portion begins; None: that was all."""


def narrow_filter(app: Rota, action: BulkAction, run_filter: RunFilter) -> RunFilter:
    """Those of them it can be done to."""
    possible = ACTION_STATES[action]
    requested = run_filter.states or possible
    states = tuple(each for each in requested if each in possible)
    if not states:
        participle = "tried again" if action == "retry" else "cancelled"
        raise ArgumentError(
            f"what is {requested[0]} cannot be {participle}, only what is {', '.join(possible)}"
        )
    return with_kind(app, msgspec.structs.replace(run_filter, states=states))


async def count_runs(
    app: Rota, fetch: FetchRows, action: BulkAction, run_filter: RunFilter
) -> RunCount:
    """How many there are; of many, that there are many."""
    # First the bound, then the rest: what is started in between is not meant.
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
    """Some of them, the latest first: those up to the id that was named when they were counted, and before
    where the last portion ended."""
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
    """Whether it was done."""
    try:
        if action == "cancel":
            return await app.run(run).cancel(by=by) in ("cancelled", "requested")
        await app.run(run).retry(by=by)
    except RunNotFound:
        return False  # removed since
    except RotaError as error:
        if type(error) is not RotaError:
            raise
        return False  # it has been tried again, or succeeded, since
    return True
