"""Quarantine and release at the same moment."""

from __future__ import annotations

import asyncio
import random

import pytest
from psycopg.errors import OperationalError

from rota.store import pg_errors
from support import flows
from support.lost_workers import (
    deadlocks,
)
from support.stage import Connection, Stage


@pytest.mark.slow
async def test_quarantine_stress_leaves_each_job_in_one_place(
    own_stage: Stage,
) -> None:
    stage = own_stage
    chance = random.Random(3)
    shape = {"a": [], "b": [], "c": [], "d": ["a", "b"], "e": ["c", "d"]}
    laid = [await flows.start(stage, shape) for _ in range(12)]
    moves = {"work": 0, "reap": 0, "cancel": 0, "release": 0}

    async def session(on: Connection) -> None:
        while min(moves.values()) < 30:
            what = chance.choices(list(moves), [6, 4, 1, 2])[0]
            try:
                await globals()[f"_{what}"](stage, chance, laid, on)
                moves[what] += 1
            except OperationalError as error:
                deadlock = pg_errors.sqlstate(error) == "40P01"
                if deadlock or on.closed or not pg_errors.is_transient(error):
                    raise

    sessions = [await stage.connect(engine=True) for _ in range(8)]
    await asyncio.gather(*(session(each) for each in sessions))

    assert await deadlocks(stage) == 0
    await stage.check()
