"""API operation that explains why a run or job does not run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.engine.diagnosis.explain import explain
from rota.errors import RunNotFound
from rota.model import explanation
from rota.model.access import Role
from rota.web.api.router import RequestContext, Router
from rota.web.api.schema_types import Id, PathId, to_document

router = Router("runs")


class ReasonDocument(msgspec.Struct, frozen=True):
    code: explanation.ReasonCode
    message: str
    kind: Annotated[explanation.SubjectKind, Meta(description="What it is about.")]
    subject: Annotated[str, Meta(description="Its number or name.")]
    job: Annotated[Id, Meta(description="The job that does not run for it.")] | None
    jobs: Annotated[int, Meta(description="So many do not, for the same reason.")]
    since: datetime | None
    until: datetime | None
    remedy: Annotated[str, Meta(description="What helps; null: nothing is to be done.")] | None
    is_stuck: Annotated[bool, Meta(description="Nothing changes by itself.")]
    is_certain: Annotated[bool, Meta(description="False: it may be so, nobody knows.")]
    detail: (
        Annotated[str, Meta(description="What an error says. Absent for viewers.")]
        | UnsetType
        | None
    ) = UNSET


class ExplanationDocument(msgspec.Struct, frozen=True):
    id: Id
    run: Id
    name: str
    is_flow: bool
    status: explanation.RunStatus
    reasons: Annotated[list[ReasonDocument], Meta(description="The most exact first.")]
    omitted_jobs: Annotated[int, Meta(description="Jobs that were not looked at.")]
    now: datetime


@router.add("GET", "/runs/{run}/explain", Role.VIEWER, error_statuses=(404,))
async def explain_run(context: RequestContext, run: PathId) -> ExplanationDocument:
    """Explain why a run, or one of its jobs, does not run, and give the remedy."""
    found = await explain(context.read, run, context.app.settings)
    if found is None:
        raise RunNotFound(f"there is no run {run}")
    reasons = [
        to_document(ReasonDocument, each, detail=each.detail if context.may_see_payloads else UNSET)
        for each in found.reasons
    ]
    return to_document(ExplanationDocument, found, reasons=reasons)
