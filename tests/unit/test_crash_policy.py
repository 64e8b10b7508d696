"""Decision about a job that was lost with its worker, before it runs again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota import LostJob, Retry, WorkerLost
from rota.engine.worker.crash_policy import after_crash
from rota.model.outcome import Quarantined, Rejected
from rota.model.task import TaskDefinition, TaskPolicy, WorkerLostAction
from rota.store.jobs import ClaimedJob


def lost_job(crashes: int, attempt: int = 1, run: int | None = None) -> ClaimedJob:
    """Return a claimed job that has crashed this number of workers."""
    return ClaimedJob(9, 7, attempt, crashes, 0, 7, "work", "default", "{}", None, None, run, None)


async def work() -> None: ...


async def decide_after_crash(job: ClaimedJob, **policy: Any) -> Rejected | Quarantined | None:
    task = TaskDefinition(work, "work", TaskPolicy(**policy))
    return await after_crash(job, task, task.policy.retry)


def message(answer: Rejected | Quarantined) -> str:
    text: str = json.loads(answer.error)["message"]
    return text


# Limit of crashes


@given(some.integers(1, 10), some.integers(0, 20))
async def test_crash_policy_job_at_max_crashes_is_quarantined(budget: int, count: int) -> None:
    answer = await decide_after_crash(
        lost_job(count, attempt=count + 1), max_crashes=budget, retry=Retry(max_attempts=100)
    )

    assert (answer is not None) == (count >= budget)
    if answer is not None:
        assert isinstance(answer, Quarantined)
        many = "a worker was" if count == 1 else f"{count} workers were"
        assert message(answer) == f"{many} lost while running it"


async def test_crash_policy_max_crashes_precedes_on_worker_lost_and_retry() -> None:
    def forbidden(loss: LostJob) -> WorkerLostAction:
        raise AssertionError("it must not be asked")

    policies: list[dict[str, Any]] = [
        {"on_worker_lost": "fail"},
        {"on_worker_lost": forbidden},
        {"retry": Retry(max_attempts=1)},
    ]
    for policy in policies:
        answer = await decide_after_crash(lost_job(3, attempt=4), **policy)
        assert isinstance(answer, Quarantined)


# on_worker_lost of the task


async def test_crash_policy_default_is_retry() -> None:
    assert await decide_after_crash(lost_job(0)) is None
    assert await decide_after_crash(lost_job(0)) is None
    assert await decide_after_crash(lost_job(1, attempt=2)) is None


@pytest.mark.parametrize(("says", "state"), [("fail", "failed"), ("cancel", "cancelled")])
@pytest.mark.parametrize("crashes", [0, 1])
async def test_crash_policy_on_worker_lost_fail_or_cancel_ends_job(
    says: str, state: str, crashes: int
) -> None:
    answer = await decide_after_crash(lost_job(crashes), on_worker_lost=says)

    assert isinstance(answer, Rejected)
    assert answer.state == state
    document = json.loads(answer.error)
    assert document["type"] == "rota.errors.WorkerLost"


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    ("says", "state"), [("retry", None), ("fail", "failed"), ("cancel", "cancelled")]
)
async def test_crash_policy_handler_receives_lost_job_and_decides(
    awaited: bool, says: WorkerLostAction, state: str | None
) -> None:
    told: list[LostJob] = []

    def plain(loss: LostJob) -> WorkerLostAction:
        told.append(loss)
        return says

    async def slow(loss: LostJob) -> WorkerLostAction:
        return plain(loss)

    answer = await decide_after_crash(
        lost_job(2, attempt=3, run=5), on_worker_lost=slow if awaited else plain
    )

    assert (answer.state if isinstance(answer, Rejected) else answer) == state
    assert told == [LostJob(7, 5, "work", 2, 2)]


async def test_crash_policy_single_job_has_its_id_as_run_id() -> None:
    told: list[LostJob] = []

    def handler(loss: LostJob) -> WorkerLostAction:
        told.append(loss)
        return "retry"

    await decide_after_crash(lost_job(1, attempt=2), on_worker_lost=handler)

    assert told[0].run_id == told[0].job_id == 7


async def test_crash_policy_handler_with_invalid_answer_fails_the_job() -> None:
    """An unknown answer does not allow the job to run again."""
    answer = await decide_after_crash(lost_job(0), on_worker_lost=lambda loss: "maybe")

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert "on_worker_lost of task 'work' answered 'maybe'" in message(answer)


async def test_crash_policy_handler_error_fails_the_job() -> None:
    async def handler(loss: LostJob) -> WorkerLostAction:
        raise LookupError("no such customer")

    answer = await decide_after_crash(lost_job(1, attempt=2), on_worker_lost=handler)

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert json.loads(answer.error)["type"].endswith("LookupError")
    assert message(answer) == "no such customer"


@pytest.mark.parametrize(("crashes", "told"), [(0, 4), (1, 3), (4, 3)])
async def test_crash_policy_handler_receives_number_of_lost_attempt(
    crashes: int, told: int
) -> None:
    """A charged loss counts as an attempt: the job is already in the next one."""
    heard: list[int] = []

    def handler(loss: LostJob) -> WorkerLostAction:
        heard.append(loss.attempt)
        return "fail"

    answer = await decide_after_crash(
        lost_job(crashes, attempt=4), on_worker_lost=handler, max_crashes=9
    )

    assert isinstance(answer, Rejected)
    assert (heard, json.loads(answer.error)["attempt"]) == ([told], told)


# Retry policy, which treats a charged loss as an error


@given(some.integers(2, 20), some.integers(1, 40))
async def test_crash_policy_charged_loss_counts_as_attempt(attempts: int, lost_in: int) -> None:
    """The job was lost in attempt `lost_in`, and is claimed again in the next one."""
    answer = await decide_after_crash(
        lost_job(1, attempt=lost_in + 1), retry=Retry(max_attempts=attempts)
    )

    assert (answer is None) == (lost_in < attempts)
    if answer is not None:
        assert isinstance(answer, Rejected)
        assert (answer.state, json.loads(answer.error)["attempt"]) == ("failed", lost_in)


@given(some.integers(2, 20))
async def test_crash_policy_uncharged_loss_in_last_attempt_is_retried(attempts: int) -> None:
    assert (
        await decide_after_crash(lost_job(0, attempt=attempts), retry=Retry(max_attempts=attempts))
        is None
    )


@pytest.mark.parametrize(("crashes", "attempt"), [(0, 1), (1, 2)])
async def test_crash_policy_task_with_one_attempt_is_not_retried(
    crashes: int, attempt: int
) -> None:
    answer = await decide_after_crash(
        lost_job(crashes, attempt=attempt), retry=Retry(max_attempts=1)
    )

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"


@pytest.mark.parametrize("crashes", [0, 1])
async def test_crash_policy_non_retryable_worker_lost_fails_the_job(crashes: int) -> None:
    answer = await decide_after_crash(lost_job(crashes), retry=Retry(non_retryable=(WorkerLost,)))

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert (
        await decide_after_crash(lost_job(crashes), retry=Retry(non_retryable=(OSError,))) is None
    )
