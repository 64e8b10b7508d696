"""Policy for suspects: decides whether a job that was lost with its worker runs again.

A worker that knows the task decides, before the job runs again. A node of a flow that only waits, and
reads no payload of a user's type, always runs again: it has run no code that could end a worker. For other
jobs, in this order:

    max_crashes       the job is quarantined when it has used them up
    on_worker_lost    retry, fail or cancel, as the task declares or its callback returns
    retry             the loss counts as an error, `WorkerLost`
"""

from __future__ import annotations

import inspect
from typing import Literal

from rota.errors import WorkerLost
from rota.model import codec
from rota.model.outcome import Quarantined, Rejected
from rota.model.retry import Retry
from rota.model.task import LostJob, TaskDefinition, WorkerLostAction
from rota.store.jobs import ClaimedJob


async def after_crash(
    job: ClaimedJob, task: TaskDefinition, retry: Retry
) -> Rejected | Quarantined | None:
    """Return the final outcome of a lost job, or None if it runs again."""
    if not task.runs_user_code:
        return None
    crashes = job.crashes
    # A charged crash has used up an attempt. A job that is not charged may not even have begun.
    attempts_used = job.attempt - 1
    last_attempt = attempts_used if crashes else job.attempt
    error = WorkerLost(f"its worker was lost {_describe_crashes(crashes)}")
    if crashes >= task.policy.max_crashes:
        subject = "a worker was" if crashes == 1 else f"{crashes} workers were"
        quarantine_error = WorkerLost(f"{subject} lost while running it")
        return Quarantined(codec.encode_error(quarantine_error, last_attempt, ""))
    lost_job = LostJob(job.job, job.run or job.job, task.name, last_attempt, crashes)
    try:
        action = await _lost_job_action(task, lost_job)
    except Exception as handler_error:
        # The callback failed, so it is unknown whether the job may run again: it may not.
        return _rejected("failed", handler_error, last_attempt)
    match action:
        case "fail":
            return _rejected("failed", error, last_attempt)
        case "cancel":
            return _rejected("cancelled", error, last_attempt)
    if retry.max_attempts == 1 or retry.delay_after(attempts_used, error) is None:
        return _rejected("failed", error, last_attempt)
    return None


async def _lost_job_action(task: TaskDefinition, lost_job: LostJob) -> WorkerLostAction:
    handler = task.policy.on_worker_lost
    if isinstance(handler, str):
        return handler
    returned = handler(lost_job)
    action: object = await returned if inspect.isawaitable(returned) else returned
    if action not in ("retry", "fail", "cancel"):
        raise ValueError(
            f'on_worker_lost of task {task.name!r} answered {action!r}; it must be "retry", '
            '"fail" or "cancel"'
        )
    return action


def _rejected(state: Literal["failed", "cancelled"], error: Exception, attempt: int) -> Rejected:
    return Rejected(state, codec.encode_error(error, attempt, ""))


def _describe_crashes(crashes: int) -> str:
    return f"{crashes} times" if crashes > 1 else "while it held it"
