"""Claim planner: a notification during a claim may be newer than its snapshot, so it claims again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from rota.engine.worker.claim_planner import ClaimPlanner, ClaimRequest
from rota.engine.worker.slots import JobSlots
from rota.model.settings import Settings
from rota.model.task import TaskDefinition, TaskPolicy


async def nothing() -> None: ...


@pytest.fixture
async def intake() -> ClaimPlanner:
    tasks = {"nothing": TaskDefinition(nothing, "nothing", TaskPolicy())}
    return ClaimPlanner(
        Settings(poll_interval=3600.0), 1, JobSlots(tasks, 10, 1000), tasks, ["default"]
    )


def answered(intake: ClaimPlanner, claim: ClaimRequest) -> None:
    """Answer the claim with no jobs."""
    answers: list[list[object]] = [[], [], []]
    intake.read_jobs(claim, answers, 0.001)


def planned(intake: ClaimPlanner) -> ClaimRequest | None:
    return intake.plan(time.monotonic() + 60)


async def rested(intake: ClaimPlanner) -> None:
    """Answer claims with no jobs until the planner has no reason to claim before the next poll."""
    intake._next_timer_at = float("inf")
    while (claim := planned(intake)) is not None:
        answered(intake, claim)


@pytest.mark.parametrize("say", [ClaimPlanner.poll_now, ClaimPlanner.expect_suspects])
async def test_news_that_comes_while_a_claim_is_on_its_way_makes_it_look_again(
    intake: ClaimPlanner, say: Callable[[ClaimPlanner], None]
) -> None:
    await rested(intake)
    say(intake)
    claim = planned(intake)
    assert claim is not None
    say(intake)  # committed after the claim's snapshot

    answered(intake, claim)

    assert planned(intake) is not None


@pytest.mark.parametrize("say", [ClaimPlanner.poll_now, ClaimPlanner.expect_suspects])
async def test_news_that_a_claim_has_followed_up_is_old(
    intake: ClaimPlanner, say: Callable[[ClaimPlanner], None]
) -> None:
    await rested(intake)
    say(intake)

    await rested(intake)

    assert planned(intake) is None
