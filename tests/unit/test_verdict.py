"""Decision about a job that was lost with its worker, before it runs again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from rota import LostJob, Retry, WorkerLost
from rota.engine.worker.crash_policy import after_crash, crash_count
from rota.model.outcome import Quarantined, Rejected
from rota.model.task import TaskDefinition, TaskPolicy, WorkerLostAction
from rota.store.jobs import ClaimedJob


def lost(mark: int, attempt: int = 1, run: int | None = None) -> ClaimedJob:
    """Return a claimed job with this value of `lost`."""
    return ClaimedJob(9, 7, attempt, mark, 0, 7, "work", "default", "{}", None, None, run, None)


async def work() -> None: ...


async def judged(job: ClaimedJob, **policy: Any) -> Rejected | Quarantined | None:
    task = TaskDefinition(work, "work", TaskPolicy(**policy))
    return await after_crash(job, task, task.policy.retry)


def message(answer: Rejected | Quarantined) -> str:
    text: str = json.loads(answer.error)["message"]
    return text


# Count of crashes


@pytest.mark.parametrize(
    ("mark", "count"),
    [(0, 0), (1, 1), (5, 5), (-1, 0), (-2, 0), (-3, 1), (-4, 2), (-5, 3), (-12, 10)],
)
def test_how_many_workers_died_of_it_is_read_from_the_mark(mark: int, count: int) -> None:
    assert crash_count(lost(mark)) == count


@given(some.integers(1, 10), some.integers(0, 20))
async def test_one_that_used_up_its_budget_is_put_away_and_none_before(
    budget: int, count: int
) -> None:
    answer = await judged(
        lost(-count - 2, attempt=count + 1), max_crashes=budget, retry=Retry(max_attempts=100)
    )

    assert (answer is not None) == (count >= budget)
    if answer is not None:
        assert isinstance(answer, Quarantined)
        many = "a worker was" if count == 1 else f"{count} workers were"
        assert message(answer) == f"{many} lost while running it"


async def test_the_budget_comes_before_what_the_task_says_and_before_its_attempts() -> None:
    def forbidden(loss: LostJob) -> WorkerLostAction:
        raise AssertionError("it must not be asked")

    policies: list[dict[str, Any]] = [
        {"on_worker_lost": "fail"},
        {"on_worker_lost": forbidden},
        {"retry": Retry(max_attempts=1)},
    ]
    for policy in policies:
        answer = await judged(lost(-5, attempt=4), **policy)
        assert isinstance(answer, Quarantined)


# on_worker_lost of the task


async def test_by_default_it_runs_again() -> None:
    assert await judged(lost(-1)) is None
    assert await judged(lost(-2)) is None
    assert await judged(lost(-3, attempt=2)) is None


@pytest.mark.parametrize(("says", "state"), [("fail", "failed"), ("cancel", "cancelled")])
@pytest.mark.parametrize("mark", [-1, -2, -3])
async def test_a_task_may_say_that_a_lost_job_is_over(says: str, state: str, mark: int) -> None:
    answer = await judged(lost(mark), on_worker_lost=says)

    assert isinstance(answer, Rejected)
    assert answer.state == state
    document = json.loads(answer.error)
    assert document["type"] == "rota.errors.WorkerLost"


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    ("says", "state"), [("retry", None), ("fail", "failed"), ("cancel", "cancelled")]
)
async def test_a_handler_is_told_what_was_lost_and_decides(
    awaited: bool, says: WorkerLostAction, state: str | None
) -> None:
    told: list[LostJob] = []

    def plain(loss: LostJob) -> WorkerLostAction:
        told.append(loss)
        return says

    async def slow(loss: LostJob) -> WorkerLostAction:
        return plain(loss)

    answer = await judged(lost(-4, attempt=3, run=5), on_worker_lost=slow if awaited else plain)

    assert (answer.state if isinstance(answer, Rejected) else answer) == state
    assert told == [LostJob(7, 5, "work", 2, 2)]


async def test_alone_its_run_is_the_job() -> None:
    told: list[LostJob] = []

    def handler(loss: LostJob) -> WorkerLostAction:
        told.append(loss)
        return "retry"

    await judged(lost(-3, attempt=2), on_worker_lost=handler)

    assert told[0].run_id == told[0].job_id == 7


async def test_a_handler_that_answers_nonsense_ends_the_job_with_an_error_that_says_so() -> None:
    """An unknown answer does not allow the job to run again."""
    answer = await judged(lost(-1), on_worker_lost=lambda loss: "maybe")

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert "on_worker_lost of task 'work' answered 'maybe'" in message(answer)


async def test_a_handler_that_fails_ends_the_job_with_its_error() -> None:
    async def handler(loss: LostJob) -> WorkerLostAction:
        raise LookupError("no such customer")

    answer = await judged(lost(-3, attempt=2), on_worker_lost=handler)

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert json.loads(answer.error)["type"].endswith("LookupError")
    assert message(answer) == "no such customer"


@pytest.mark.parametrize(("mark", "told"), [(-1, 4), (-2, 4), (-3, 3), (-6, 3)])
async def test_the_attempt_it_is_told_is_the_one_that_was_lost(mark: int, told: int) -> None:
    """A charged loss counts as an attempt: the job is already in the next one."""
    heard: list[int] = []

    def handler(loss: LostJob) -> WorkerLostAction:
        heard.append(loss.attempt)
        return "fail"

    answer = await judged(lost(mark, attempt=4), on_worker_lost=handler, max_crashes=9)

    assert isinstance(answer, Rejected)
    assert (heard, json.loads(answer.error)["attempt"]) == ([told], told)


# Retry policy, which treats a charged loss as an error


@given(some.integers(2, 20), some.integers(1, 40))
async def test_a_charged_loss_is_an_attempt(attempts: int, lost_in: int) -> None:
    """The job was lost in attempt `lost_in`, and is claimed again in the next one."""
    answer = await judged(lost(-3, attempt=lost_in + 1), retry=Retry(max_attempts=attempts))

    assert (answer is None) == (lost_in < attempts)
    if answer is not None:
        assert isinstance(answer, Rejected)
        assert (answer.state, json.loads(answer.error)["attempt"]) == ("failed", lost_in)


@given(some.integers(2, 20))
async def test_an_uncharged_loss_is_none_also_in_the_last_attempt(attempts: int) -> None:
    assert await judged(lost(-1, attempt=attempts), retry=Retry(max_attempts=attempts)) is None


@pytest.mark.parametrize(("mark", "attempt"), [(-1, 1), (-2, 1), (-3, 2)])
async def test_a_task_that_is_tried_once_is_not_tried_twice(mark: int, attempt: int) -> None:
    answer = await judged(lost(mark, attempt=attempt), retry=Retry(max_attempts=1))

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"


@pytest.mark.parametrize("mark", [-1, -3])
async def test_an_error_that_is_never_tried_again_may_be_the_loss_of_a_worker(mark: int) -> None:
    answer = await judged(lost(mark), retry=Retry(non_retryable=(WorkerLost,)))

    assert isinstance(answer, Rejected)
    assert answer.state == "failed"
    assert await judged(lost(mark), retry=Retry(non_retryable=(OSError,))) is None
