"""Operation that explains why a run or job does not run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.engine.diagnosis.explain import explain
from rota.errors import RunNotFound
from rota.model import explanation
from rota.model.access import Role
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import Id, PathId, to_document

group = OperationGroup("runs")


class ReasonDocument(msgspec.Struct, frozen=True):
    code: explanation.ReasonCode
    message: str
    kind: Annotated[
        explanation.SubjectKind, Meta(description="Kind of the object that is the cause.")
    ]
    subject: Annotated[str, Meta(description="Id or name of that object.")]
    job: Annotated[Id, Meta(description="Job that this reason holds up.")] | None
    jobs: Annotated[int, Meta(description="Number of jobs held up by the same reason.")]
    since: datetime | None
    until: datetime | None
    remedy: Annotated[str, Meta(description="Remedy; null if none is needed.")] | None
    is_stuck: Annotated[bool, Meta(description="True if nothing changes without the remedy.")]
    is_certain: Annotated[
        bool, Meta(description="False if the reason is possible but not certain.")
    ]
    detail: (
        Annotated[str, Meta(description="Text of the error. Absent for viewers.")]
        | UnsetType
        | None
    ) = UNSET


class ExplanationDocument(msgspec.Struct, frozen=True):
    id: Id
    run: Id
    name: str
    is_flow: bool
    status: explanation.RunStatus
    reasons: Annotated[list[ReasonDocument], Meta(description="Most specific reason first.")]
    omitted_jobs: Annotated[int, Meta(description="Jobs that were not checked.")]
    now: datetime


@group.operation("GET /runs/{run}/explain", Role.VIEWER, refuses=(RunNotFound,))
async def explain_run(context: OperationContext, run: PathId) -> ExplanationDocument:
    """Explain why a run, or one of its jobs, does not run, and give the remedy."""
    found = await explain(context.read, run, context.app.settings)
    if found is None:
        raise RunNotFound(f"there is no run {run}")
    reasons = [
        to_document(ReasonDocument, each, detail=each.detail if context.may_see_payloads else UNSET)
        for each in found.reasons
    ]
    return to_document(ExplanationDocument, found, reasons=reasons)
