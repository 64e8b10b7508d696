"""Operations on many runs: count the runs that match, then cancel or retry them in batches."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError
from rota.model.access import Role
from rota.model.document import Id
from rota.operations import bulk_actions
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    MAX_INT64,
    Cursor,
    IdText,
    Next,
    decode_id_cursor,
    encode_cursor,
)
from rota.operations.filters import RunFilterQuery, build_run_filter

group = OperationGroup("runs")

MAX_IDS = 500


class RunCountQuery(RunFilterQuery):
    action: Annotated[
        bulk_actions.BulkAction, Meta(description="Count the runs that this action applies to.")
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
    found = await bulk_actions.count_runs(
        context.app, context.read, query.action, build_run_filter(context, query)
    )
    return RunCountDocument(found.count, found.is_exact, found.last_id)


@group.operation("POST /runs/cancel", Role.OPERATOR, audit="cancel run")
async def cancel_runs(context: OperationContext, body: BulkRequest) -> BulkDocument:
    """Cancel a batch of matching runs, the latest first. Repeat with `cursor` = `next` until it is null."""
    return await _run_bulk_action(context, "cancel", body)


@group.operation("POST /runs/retry", Role.OPERATOR, audit="retry run")
async def retry_runs(context: OperationContext, body: BulkRequest) -> BulkDocument:
    """Retry a batch of matching runs, the latest first. Repeat with `cursor` = `next` until it is null."""
    return await _run_bulk_action(context, "retry", body)


async def _run_bulk_action(
    context: OperationContext, action: bulk_actions.BulkAction, body: BulkRequest
) -> BulkDocument:
    if (body.upto is None) == (body.ids is None):
        raise ArgumentError("pass `upto`, from GET /runs/count, or `ids`, but not both")
    # `apply_batch` adds 1 to the id.
    upto = MAX_INT64 - 1 if body.upto is None else min(int(body.upto), MAX_INT64 - 1)
    result = await bulk_actions.apply_batch(
        context.app,
        context.read,
        action,
        build_run_filter(context, body, body.ids),
        last_id=upto,
        before=None if body.cursor is None else decode_id_cursor(body.cursor, MAX_INT64),
        by=context.caller.name,
    )
    next = None if result.next_id is None else encode_cursor(str(result.next_id))
    return BulkDocument(result.done, result.skipped, next)
