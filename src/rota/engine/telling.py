"""What every reason is made with: the job it is of, what is known beside it, and who is there."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.model import codec
from rota.model.why import ExplanationReason, SubjectKind
from rota.store.why import EligibleWorkers, JobSituationRow, QueuePosition, WaitingRow

WORKER_COMMAND = "`rota worker MODULE:APP`"


class Situation(msgspec.Struct, frozen=True):
    """What is known beside the job itself."""

    now: datetime
    dead_after: float
    eligibility: dict[tuple[str, str], EligibleWorkers]
    positions: dict[int, QueuePosition]
    waits: dict[int, list[WaitingRow]]

    def eligibility_of(self, job: JobSituationRow) -> EligibleWorkers:
        return self.eligibility[job.queue, job.task]


class ReasonBuilder:
    """Makes reasons of one job."""

    def __init__(self, job: JobSituationRow, situation: Situation, name: str) -> None:
        self.job = job
        self.situation = situation
        self.eligibility = situation.eligibility_of(job)
        self.name = name

    def __call__(
        self,
        *,
        message: str,
        about: tuple[SubjectKind, object] | None = None,
        error: bytes | None = None,
        **more: Any,
    ) -> ExplanationReason:
        kind, subject = about or ("job", self.job.job)
        if error is not None:
            more["detail"] = codec.decode_error(error).message or None
        more.setdefault("since", self.job.since)
        return ExplanationReason(
            message=message,
            kind=kind,
            subject=str(subject),
            job=self.job.job,
            **more,
        )


def no_worker_reason(builder: ReasonBuilder, message: str) -> ExplanationReason:
    return builder(
        code="no_worker",
        message=message,
        about=("queue", builder.job.queue),
        remedy=f"start one with {WORKER_COMMAND}",
        is_stuck=True,
    )


def format_count(number: int, singular: str, plural: str) -> str:
    return f"{number:,} {singular if number == 1 else plural}"
