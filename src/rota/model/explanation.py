"""Why something does not run: reasons, as data and as sentences.

A reason is one thing that is so: a word for programs, a sentence for people, what it is about, since when,
until when, and what to do. Sentences name no times, so that each reader is told them in his own way, and
quote nothing that went into a run or came out of it: that is `detail`, for those who may see it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import msgspec

ReasonCode = Literal[
    # It has gone, or stands, where nobody comes by himself.
    "quarantined",
    "paused",
    "no_worker",
    "queue_unserved",
    "task_unknown",
    "draining",
    # Somebody is late, or gone.
    "orphaned",
    "silent",
    "hold_over",
    "late",
    # It comes by itself, in time.
    "signal",
    "step_retry",
    "retry",
    "sleep",
    "delay",
    "due",
    "suspect",
    "full",
    "behind",
    "next",
    "cancelling",
    "lock",
    "settling",
    "moving",
    "running",
    # What comes between: whom it waits for.
    "limit",
    "calls",
    "parents",
    "ended",
]
"""From what is most exact, and most in need of somebody, to what merely leads there."""

SubjectKind = Literal["run", "job", "worker", "queue", "task", "signal", "lock"]
RunStatus = Literal["ended", "running", "waiting", "stuck"]

_RANKS = {code: rank for rank, code in enumerate(get_args(ReasonCode))}


class ExplanationReason(msgspec.Struct, frozen=True, kw_only=True):
    code: ReasonCode
    message: str
    kind: SubjectKind
    """What it is about …"""
    subject: str
    """… and its number or name."""
    job: int | None = None
    """The job that does not run for it; None: none in particular."""
    jobs: int = 1
    """So many do not, for the same reason."""
    since: datetime | None = None
    until: datetime | None = None
    remedy: str | None = None
    """What helps; None: nothing is to be done."""
    is_stuck: bool = False
    """Nothing changes by itself."""
    is_certain: bool = True
    """False: it may be so, nobody knows."""
    detail: str | None = None
    """What an error or somebody's note says: not for everybody."""

    @property
    def rank(self) -> tuple[bool, bool, int]:
        return not self.is_stuck, not self.is_certain, _RANKS[self.code]


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    run: int
    name: str
    """Empty: calls a job has made."""
    is_flow: bool
    status: RunStatus
    reasons: list[ExplanationReason]
    """The most exact first; those that only lead to it last."""
    omitted_jobs: int
    """Jobs that were not looked at, for there are so many."""
    now: datetime

    @property
    def is_stuck(self) -> bool:
        """Nothing changes until somebody does something."""
        return self.status == "stuck"

    def without_details(self) -> Explanation:
        """For those who may not see what errors say."""
        reasons = [msgspec.structs.replace(each, detail=None) for each in self.reasons]
        return msgspec.structs.replace(self, reasons=reasons)


def status_of(reasons: list[ExplanationReason], job: int | None) -> RunStatus:
    """What they come to, for a job, or for a run as a whole (None): that runs while anything of it does; a
    job that waits for one that runs waits."""
    if any(each.is_stuck for each in reasons):
        return "stuck"
    codes = {each.code for each in reasons}
    if codes == {"ended"}:
        return "ended"
    active = [each for each in reasons if each.code in ("running", "cancelling")]
    is_running = any(job is None or each.job == job for each in active)
    return "running" if is_running else "waiting"
