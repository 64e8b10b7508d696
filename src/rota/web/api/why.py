"""Why something does not run, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.engine.why import explain
from rota.errors import RunNotFound
from rota.model import why
from rota.model.access import Role
from rota.web.api.operations import Desk, Table
from rota.web.api.shapes import Id, Number, shape

table = Table("runs")


class Reason(msgspec.Struct, frozen=True):
    code: why.Code
    words: str
    kind: Annotated[why.Kind, Meta(description="What it is about.")]
    subject: Annotated[str, Meta(description="Its number or name.")]
    job: Annotated[Id, Meta(description="The job that does not run for it.")] | None
    jobs: Annotated[int, Meta(description="So many do not, for the same reason.")]
    since: datetime | None
    until: datetime | None
    do: Annotated[str, Meta(description="What helps; null: nothing is to be done.")] | None
    stuck: Annotated[bool, Meta(description="Nothing changes by itself.")]
    sure: Annotated[bool, Meta(description="False: it may be so, nobody knows.")]
    detail: (
        Annotated[str, Meta(description="What an error says. Absent for viewers.")]
        | UnsetType
        | None
    ) = UNSET


class WhyDocument(msgspec.Struct, frozen=True):
    id: Id
    run: Id
    name: str
    is_flow: bool
    verdict: why.Verdict
    reasons: Annotated[list[Reason], Meta(description="The most exact first.")]
    left_out: Annotated[int, Meta(description="Jobs that were not looked at.")]
    now: datetime


@table.add("GET", "/runs/{run}/why", Role.VIEWER, fails=(404,))
async def explain_run(desk: Desk, run: Number) -> WhyDocument:
    """Why it, or one job of it, does not run: what it waits for, and what to do."""
    found = await explain(desk.ask, run, desk.app.settings)
    if found is None:
        raise RunNotFound(f"there is no run {run}")
    reasons = [
        shape(Reason, each, detail=each.detail if desk.shows else UNSET) for each in found.reasons
    ]
    return shape(WhyDocument, found, reasons=reasons)
