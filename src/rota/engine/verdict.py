"""What becomes of a job that was lost with a worker: said before it runs again, by a worker that knows
its task.

Its crash budget comes first, then what the task says of lost jobs, then its retry rules, to which the
loss is an error like another.
"""

from __future__ import annotations

import inspect

from rota.errors import WorkerLost
from rota.model import codec
from rota.model.outcome import Judged
from rota.model.retry import Retry
from rota.model.task import Definition, Fate, Loss
from rota.store.jobs import Claimed


def crashes(job: Claimed) -> int:
    """How many workers died of it, as far as one can tell."""
    return max(-job.lost - 2, 0) if job.lost < 0 else job.lost


def is_grave(job: Claimed) -> bool:
    """Whether it was lost more than once, so that it has to run alone."""
    return job.lost < 0 and job.lost not in (-1, -3)


async def verdict(job: Claimed, task: Definition, retry: Retry) -> Judged | None:
    """None: it runs again."""
    charged = crashes(job)
    # The loss is an attempt to one that was charged with it; another may not even have begun.
    used = job.attempt - 1
    last = used if charged else job.attempt
    error = WorkerLost(f"its worker was lost {_times(charged)}")
    if charged >= task.policy.crashes:
        many = "a worker was" if charged == 1 else f"{charged} workers were"
        return _judged("quarantined", WorkerLost(f"{many} lost while running it"), last)
    loss = Loss(job.job, job.run or job.job, task.name, last, charged)
    try:
        fate = await _fate(task, loss)
    except Exception as trouble:
        # Nobody could say whether it may run again: then it may not.
        return _judged("failed", trouble, last)
    match fate:
        case "fail":
            return _judged("failed", error, last)
        case "cancel":
            return _judged("cancelled", error, last)
    if retry.attempts == 1 or retry.after(used, error) is None:
        return _judged("failed", error, last)
    return None


async def _fate(task: Definition, loss: Loss) -> Fate:
    decide = task.policy.on_dead
    if isinstance(decide, str):
        return decide
    fate = decide(loss)
    answer: object = await fate if inspect.isawaitable(fate) else fate
    if answer not in ("revive", "fail", "cancel"):
        raise ValueError(
            f'on_dead of task {task.name!r} answered {answer!r}; it must be "revive", "fail" or "cancel"'
        )
    return answer


def _judged(state: str, error: Exception, attempt: int) -> Judged:
    return Judged(state, codec.error_document(error, attempt, ""))  # type: ignore[arg-type]


def _times(charged: int) -> str:
    return f"{charged} times" if charged > 1 else "while it held it"
