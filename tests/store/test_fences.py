"""Every statement that takes a fence refuses a wrong one: it writes nothing and reports the refusal.

A worker that was presumed dead can change nothing, because each write names its claim (promise 3).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import rota.store
from rota.store import claims, jobs, steps
from rota.store.jobs import ClaimedJob, MoveResult
from rota.store.query import Query
from rota.store.steps import UnwrittenEntry
from support.journals import sleep, step
from support.stage import Batch, Stage

Make = Callable[[int, int, list[int]], Query[Any]]
"""Builds a statement from a worker, a claim and jobs."""


def held(claim: int, given: list[int]) -> list[ClaimedJob]:
    """Return jobs as the holder of this claim has them."""
    return [
        ClaimedJob(claim, job, 1, 0, 1, job, "work", "default", "{}", None, None, None, None)
        for job in given
    ]


FENCED: dict[str, Make] = {
    "job/complete": lambda worker, claim, given: jobs.complete(
        worker, [claim] * len(given), given, [None] * len(given), [0.0] * len(given)
    ),
    "job/finish": lambda worker, claim, given: jobs.finish(
        worker,
        [claim] * len(given),
        given,
        ["failed"] * len(given),
        [None] * len(given),
        [0.0] * len(given),
    ),
    "job/retry": lambda worker, claim, given: jobs.retry(
        worker,
        [claim] * len(given),
        given,
        [60.0] * len(given),
        ["{}"] * len(given),
        [0.0] * len(given),
    ),
    "job/return_to_queue": lambda worker, claim, given: jobs.return_to_queue(
        worker, [claim] * len(given), given
    ),
    "job/finish_lost": lambda worker, claim, given: jobs.finish_lost(
        worker, [claim] * len(given), given, ["failed"] * len(given), ["{}"] * len(given)
    ),
    "job/quarantine": lambda worker, claim, given: jobs.quarantine(
        worker, [claim] * len(given), given, ["{}"] * len(given)
    ),
    "job/checkpoint": lambda worker, claim, given: jobs.checkpoint(worker, claim, given[0], "1"),
    "job/suspend": lambda worker, claim, given: steps.suspend(
        worker, held(claim, given), [(each, sleep(60)) for each in held(claim, given)]
    ),
    "step/record": lambda worker, claim, given: steps.record(
        worker, [(each, step("a")) for each in held(claim, given)]
    ),
    "step/restart": lambda worker, claim, given: steps.restart(
        worker, held(claim, given), ["{}"] * len(given)
    ),
    "claim/lock_shared": lambda worker, claim, given: claims.lock_shared(worker, claim, given[0]),
    "claim/mark_running": lambda worker, claim, given: claims.mark_running(
        worker, claim, given[0], exclusive=True
    ),
    "claim/split": lambda worker, claim, given: claims.split(worker, claim, given[0], uuid4()),
    "claim/lock": lambda worker, claim, _: claims.lock(worker, [claim]),
}

READS = {"job/recorded"}
"""Statements that name claims and change nothing."""

OTHERS = {"claim/assert_held", "claim/reap", "flow/start", "step/write_progress"}
"""Statements that name a claim and have their own tests: they raise, take back, start, or notify."""


def refused(statement: str, answer: list[Any], given: list[int]) -> bool:
    """True if this answer is the statement's refusal."""
    match statement:
        case "job/complete":
            return sorted(answer[0].jobs) == sorted(given)
        case "step/record":
            return {each.index: each for each in answer} == {
                number: UnwrittenEntry(number, is_held=False) for number in range(1, len(given) + 1)
            }
        case (
            "job/finish"
            | "job/retry"
            | "job/return_to_queue"
            | "job/finish_lost"
            | "job/quarantine"
        ):
            return bool(answer == [MoveResult([], [], [], False)])
        case "job/suspend" | "step/restart":
            return bool(answer == [MoveResult([], [], [], False)])
        case _:
            return answer == []


def test_fenced_statements_list_is_complete() -> None:
    folder = Path(rota.store.__file__).parent / "sql"
    named = {
        str(file.relative_to(folder).with_suffix(""))
        for file in folder.glob("*/*.sql")
        if re.search(r"%\(claims?\)", file.read_text("utf-8"))
    }

    assert named - READS - OTHERS == FENCED.keys()


@pytest.mark.parametrize("statement", FENCED)
async def test_fence_with_another_worker_is_refused(stage: Stage, statement: str) -> None:
    batch = await stage.held(2)
    thief = await stage.worker()

    await expect_refusal(stage, statement, thief, batch.id, batch.jobs)


@pytest.mark.parametrize("statement", FENCED)
async def test_fence_with_unknown_claim_is_refused(stage: Stage, statement: str) -> None:
    batch = await stage.held(2)

    await expect_refusal(stage, statement, batch.worker, batch.id + 1, batch.jobs)


@pytest.mark.parametrize("statement", FENCED)
async def test_fence_with_returned_claim_is_refused(stage: Stage, statement: str) -> None:
    batch = await stage.held(2)
    await stage.give_back(batch)

    await expect_refusal(stage, statement, batch.worker, batch.id, batch.jobs)


@pytest.mark.parametrize("statement", FENCED)
async def test_fence_with_previous_claim_of_same_worker_is_refused(
    stage: Stage, statement: str
) -> None:
    old = await stage.held(2)
    await stage.give_back(old)
    new = await stage.claim(old.worker)

    await expect_refusal(stage, statement, old.worker, old.id, old.jobs)
    assert await stage.held_by(new.id) == new.jobs


@pytest.mark.parametrize("statement", sorted(FENCED.keys() - {"claim/lock"}))
async def test_fence_with_job_of_another_claim_is_refused(stage: Stage, statement: str) -> None:
    mine, theirs = await stage.held(1), await stage.held(1)

    await expect_refusal(stage, statement, mine.worker, mine.id, theirs.jobs)


@pytest.mark.parametrize("statement", FENCED)
async def test_fence_with_current_claim_is_accepted(stage: Stage, statement: str) -> None:
    """Otherwise the refusal tests would also pass if every statement were always refused."""
    batch = await stage.held(2)
    before = await stage.everything()

    async with stage.engine.transaction(force_rollback=True):
        answer = await stage.run(FENCED[statement](batch.worker, batch.id, batch.jobs))
        after = await stage.everything(on=stage.engine)

    if statement in ("claim/lock", "claim/lock_shared"):
        assert answer == [batch.id]
    else:
        assert after != before


async def expect_refusal(
    stage: Stage, statement: str, worker: int, claim: int, given: list[int]
) -> None:
    before = await stage.everything()

    answer = await stage.run(FENCED[statement](worker, claim, given))

    assert refused(statement, answer, given)
    assert await stage.everything() == before


async def test_fence_of_successive_claims_only_rises(stage: Stage) -> None:
    fences = []
    worker = await stage.worker()
    await stage.start()
    for _ in range(5):
        batch: Batch = await stage.claim(worker)
        fences.append(batch.id)
        await stage.give_back(batch)

    assert fences == sorted(set(fences))
