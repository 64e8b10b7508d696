"""Reasons why a run or job does not run, as data and as sentences.

A reason is one fact: a code for programs, a message for people, its subject, since when, until when, and
the remedy. Messages contain no times, so that each client can format `since` and `until` itself. Messages
never quote the input or the result of a run. `detail` may, and only authorised callers receive it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from rota.model.document import Id, Mark

# Nothing happens without an operator.
_Stuck = Literal["quarantined", "paused", "no_worker", "queue_unserved", "task_unknown", "draining"]
# A worker or the clock is late, or a worker is lost.
_Late = Literal["orphaned", "silent", "visibility_timeout", "late"]
# Resolves without intervention.
_Sleeping = Literal["signal", "step_retry", "retry", "sleep", "delay", "due"]
_Queued = Literal["suspect", "full", "behind", "next"]
_Active = Literal["cancelling", "lock", "releasing", "moving", "running"]
# Waits for another job or run.
_Elsewhere = Literal["limit", "children", "predecessors", "ended"]

ReasonCode = Literal[_Stuck, _Late, _Sleeping, _Queued, _Active, _Elsewhere]
"""Ordered from the most specific and urgent codes to codes that only refer to another job."""

SubjectKind = Literal["run", "job", "worker", "queue", "task", "signal", "lock"]
RunStatus = Literal["ended", "running", "waiting", "stuck"]

_RANKS = {code: rank for rank, code in enumerate(get_args(ReasonCode))}


class ExplanationReason(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why a run or job does not run, with its cause and remedy."""

    code: ReasonCode
    message: str
    kind: Annotated[SubjectKind, Meta(description="Kind of the object that is the cause.")]
    subject: Annotated[str, Meta(description="Id or name of that object.")]
    job: Annotated[Id, Meta(description="Job that this reason holds up.")] | None = None
    jobs: Annotated[int, Meta(description="Number of jobs held up by the same reason.")] = 1
    since: datetime | None = None
    until: datetime | None = None
    remedy: Annotated[str, Meta(description="Remedy; null if none is needed.")] | None = None
    is_stuck: Annotated[bool, Meta(description="True if nothing changes without the remedy.")] = (
        False
    )
    is_certain: Annotated[
        bool, Meta(description="False if the reason is possible but not certain.")
    ] = True
    detail: (
        Annotated[str, Mark.HIDDEN, Meta(description="Text of the error. Absent for viewers.")]
        | None
    ) = None
    """Message of an error, or an operator's note."""

    @property
    def rank(self) -> tuple[bool, bool, int]:
        return not self.is_stuck, not self.is_certain, _RANKS[self.code]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a run or job, and the reasons why it does not run."""

    id: Id
    run: Id
    name: str
    """Name of the task or flow; empty for the child calls of a job."""
    is_flow: bool
    status: RunStatus
    reasons: Annotated[list[ExplanationReason], Meta(description="Most specific reason first.")]
    """Reasons that only refer to another job are last."""
    omitted_jobs: Annotated[int, Meta(description="Jobs that were not checked.")]
    """There are too many jobs to check all."""
    now: datetime

    @property
    def is_stuck(self) -> bool:
        """True if nothing changes until an operator acts."""
        return self.status == "stuck"

    def without_details(self) -> Explanation:
        """Return a copy without details, for callers that may not read error messages."""
        reasons = [msgspec.structs.replace(each, detail=None) for each in self.reasons]
        return msgspec.structs.replace(self, reasons=reasons)


def status_of(reasons: list[ExplanationReason], job: int | None) -> RunStatus:
    """Return the status of a job, or of a whole run if `job` is None.

    A run is running while any of its jobs is. A job that waits for a running job is waiting.
    """
    if any(each.is_stuck for each in reasons):
        return "stuck"
    codes = {each.code for each in reasons}
    if codes == {"ended"}:
        return "ended"
    active = [each for each in reasons if each.code in ("running", "cancelling")]
    is_running = any(job is None or each.job == job for each in active)
    return "running" if is_running else "waiting"


def unserved_reason(serving_workers: int) -> str:
    """Return why no worker can run a queued job, by the number of workers that serve its queue."""
    if not serving_workers:
        return "no worker serves the queue"
    if serving_workers == 1:
        return "the only worker that serves the queue does not know the task"
    return f"none of the {serving_workers:,} workers that serve the queue knows the task"
