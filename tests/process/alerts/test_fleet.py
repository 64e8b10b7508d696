"""Alerts of a fleet of real processes are raised once and cleared once, whichever process dies."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta

import pytest

from rota import Rota
from rota.model import alert_rules
from rota.testing import SettableClock
from support.alert_fleet import Fleet, wait_for_rounds, wait_for_workers
from support.alert_helpers import HOST, ManualEvaluator, Sql, rows, until


async def test_fleet_killed_worker_raises_one_alert_until_replaced(
    rota_dsn: str, db: Sql, fleet: Fleet
) -> None:
    # The missing worker raises the alert here, not the time since it died.
    fleet.start(3, ROTA_ALERTS="worker-dead=1s")
    await wait_for_workers(db, 3)
    await wait_for_rounds(db)

    fleet.processes[0].send_signal(signal.SIGKILL)
    await until(db, [(alert_rules.WORKER_DEAD, HOST, True)])
    before = await wait_for_rounds(db)
    await wait_for_rounds(db, before + 5)
    assert await rows(db) == [(alert_rules.WORKER_DEAD, HOST, True)], "no worker has replaced it"

    fleet.start(1, ROTA_ALERTS="worker-dead=1s")
    await until(db, [(alert_rules.WORKER_DEAD, HOST, False)])
    assert await fleet.told(db, 2) == [
        f"AlertRaised {alert_rules.WORKER_DEAD}: {HOST}",
        f"AlertCleared {alert_rules.WORKER_DEAD}: {HOST}",
    ]


async def test_fleet_frozen_evaluator_is_replaced_without_duplicate_alerts(
    rota_dsn: str, db: Sql, fleet: Fleet
) -> None:
    fleet.start(3, ROTA_ALERTS="worker-dead=off queue-age=1s")
    await wait_for_workers(db, 3)
    await wait_for_rounds(db)
    await db.execute("select rota.start('draw', '{}', queue => 'nobody')")
    await until(db, [(alert_rules.QUEUE_OLD, "nobody", True)])
    await fleet.told(db, 1)
    [judge] = {int(line.split()[0]) for line in fleet.notes.read_text().splitlines()}

    [raiser] = [each for each in fleet.processes if each.pid == judge]
    raiser.send_signal(signal.SIGSTOP)
    other = next(each for each in fleet.processes if each is not raiser)
    other.send_signal(signal.SIGKILL)
    await wait_for_rounds(db, await wait_for_rounds(db) + 3)
    await db.execute("delete from rota.queued")
    await until(db, [(alert_rules.QUEUE_OLD, "nobody", False)])
    raiser.send_signal(signal.SIGCONT)

    assert await fleet.told(db, 2) == [
        f"AlertRaised {alert_rules.QUEUE_OLD}: nobody",
        f"AlertCleared {alert_rules.QUEUE_OLD}: nobody",
    ]
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "nobody", False)]


async def test_alert_round_concurrent_evaluators_make_one_round(
    rota_app: Rota, rota_dsn: str, db: Sql
) -> None:
    lookers = [ManualEvaluator(rota_dsn) for _ in range(8)]
    clock = SettableClock(rota_app)
    await clock.advance(timedelta())  # it stands still
    await db.execute("select rota.start('work', '{}')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")

    for number in range(1, 4):
        answers = await asyncio.gather(*(each.round.evaluate(0.2) for each in lookers))
        assert await wait_for_rounds(db) == number
        assert sum(len(changed) for changed, _ in answers) == (1 if number == 1 else 0)
        await clock.advance(timedelta(seconds=0.21))
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "default", True)]
    for each in lookers:
        await each.close()


async def test_alert_round_outdated_observation_changes_nothing(
    rota_dsn: str, db: Sql, manual_evaluator: ManualEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance has observed an alert and freezes before writing it. Meanwhile another instance makes a
    round, so the observation is outdated.
    """
    late = ManualEvaluator(rota_dsn)
    await db.execute("select rota.start('work', '{}')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")
    look = late.round._observe

    async def frozen(now: object) -> object:
        seen = await look(now)  # type: ignore[arg-type]
        await db.execute("delete from rota.queued")
        assert await manual_evaluator.look() == []
        return seen

    monkeypatch.setattr(late.round, "_observe", frozen)

    assert await late.look() == []
    assert await rows(db) == []
    await late.close()


async def test_alert_round_after_clock_set_back_is_still_made(
    db: Sql, manual_evaluator: ManualEvaluator
) -> None:
    await manual_evaluator.look()
    await db.execute("update rota.alert_rounds set at = now() + interval '1 day'")
    await manual_evaluator.round.evaluate(60.0)
    assert await wait_for_rounds(db) == 2
