"""Workers of the ETL example, killed again and again."""

from __future__ import annotations

import random
import time

import pytest

from support.etl import APP, CENTS, Etl, Make

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize("turn", range(8))
def test_etl_workers_killed_repeatedly_publish_once(programs: Make, turn: int) -> None:
    """A job that was running at three kills is quarantined, until an operator releases it."""
    etl = Etl(programs(ETL_PACE="0.3", ETL_SETTLE="1"))
    etl.start(3)
    etl.programs.rows("select rota.signal(%s, 'approval', 'true')", etl.run)
    ended = "select from rota.run_state where run = %s and state::text = 'succeeded'"
    dice, kills, released = random.Random(turn), 0, 0
    while not etl.programs.rows(ended, etl.run):
        time.sleep(dice.uniform(0.2, 1.5))
        if etl.programs.rows("select from rota.quarantine"):
            etl.programs.run("rota", "release", "-a", APP, "--all")
            released += 1
        if kills < 12:
            dice.choice([each for each in etl.workers if each.lives]).kill()
            etl.start(1)
            kills += 1

    print(f"{kills} kills, released {released} times")
    assert kills > 3
    assert etl.sum_of("sales") == CENTS
    assert len(etl.programs.rows("select from sales")) == 3
    assert etl.staged() == {}
