"""Claim planner: a notification during a claim may be newer than its snapshot, so it claims again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rota.engine.worker.claim_planner import ClaimPlanner, ClaimRequest
from rota.engine.worker.outcomes import OutcomeQueue
from rota.engine.worker.slots import JobSlots
from rota.model.settings import Settings
from rota.model.task import TaskDefinition, TaskPolicy


async def nothing() -> None: ...


@pytest.fixture
async def planner() -> ClaimPlanner:
    tasks = {"nothing": TaskDefinition(nothing, "nothing", TaskPolicy())}
    return ClaimPlanner(
        Settings(poll_interval=3600.0),
        1,
        JobSlots(tasks, 10, 1000, OutcomeQueue()),
        tasks,
        ["default"],
        lambda due: None,
    )


def answer_without_jobs(intake: ClaimPlanner, claim: ClaimRequest) -> None:
    """Answer the claim with no jobs."""
    answers: list[list[object]] = [[], [], []]
    intake.read_jobs(claim, answers, 0.001)


def plan_claim(intake: ClaimPlanner) -> ClaimRequest | None:
    return intake.plan(time.monotonic() + 60)


async def answer_until_idle(intake: ClaimPlanner) -> None:
    """Answer claims with no jobs until the planner has no reason to claim before the next poll."""
    intake._next_timer_at = float("inf")
    while (claim := plan_claim(intake)) is not None:
        answer_without_jobs(intake, claim)


@pytest.mark.parametrize("say", [ClaimPlanner.poll_now, ClaimPlanner.expect_suspects])
async def test_planner_notification_during_claim_plans_another_claim(
    planner: ClaimPlanner, say: Callable[[ClaimPlanner], None]
) -> None:
    await answer_until_idle(planner)
    say(planner)
    claim = plan_claim(planner)
    assert claim is not None
    say(planner)  # committed after the claim's snapshot

    answer_without_jobs(planner, claim)

    assert plan_claim(planner) is not None


@pytest.mark.parametrize("say", [ClaimPlanner.poll_now, ClaimPlanner.expect_suspects])
async def test_planner_notification_before_claim_plans_no_second_claim(
    planner: ClaimPlanner, say: Callable[[ClaimPlanner], None]
) -> None:
    await answer_until_idle(planner)
    say(planner)

    await answer_until_idle(planner)

    assert plan_claim(planner) is None
