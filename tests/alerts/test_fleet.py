"""Alerts of a fleet of real processes are raised once and cleared once, whichever process dies."""

from __future__ import annotations

import asyncio
import signal

import pytest

from rota.model import alert_rules

from .fleet import Fleet, judge_of, there
from .looking import HOST, Looker, Sql, rows, until


async def test_a_worker_killed_is_told_once_over_three_and_over_when_another_took_its_place(
    rota_dsn: str, db: Sql, fleet: Fleet
) -> None:
    # The missing worker raises the alert here, not the time since it died.
    fleet.start(3, ROTA_ALERTS="worker-dead=1s")
    await there(db, 3)
    await judge_of(db)

    fleet.processes[0].send_signal(signal.SIGKILL)
    await until(db, [(alert_rules.WORKER_DEAD, HOST, True)], 20)
    before = await judge_of(db)
    await judge_of(db, before + 5)
    assert await rows(db) == [(alert_rules.WORKER_DEAD, HOST, True)], "no worker has replaced it"

    fleet.start(1, ROTA_ALERTS="worker-dead=1s")
    await until(db, [(alert_rules.WORKER_DEAD, HOST, False)], 20)
    assert await fleet.told(db, 2) == [
        f"AlertRaised {alert_rules.WORKER_DEAD}: {HOST}",
        f"AlertCleared {alert_rules.WORKER_DEAD}: {HOST}",
    ]


async def test_whoever_looks_may_die_or_freeze_and_another_goes_on(
    rota_dsn: str, db: Sql, fleet: Fleet
) -> None:
    fleet.start(3, ROTA_ALERTS="worker-dead=off queue-age=1s")
    await there(db, 3)
    await judge_of(db)
    await db.execute("select rota.start('draw', '{}', queue => 'nobody')")
    await until(db, [(alert_rules.QUEUE_OLD, "nobody", True)], 20)
    await fleet.told(db, 1)
    [judge] = {int(line.split()[0]) for line in fleet.notes.read_text().splitlines()}

    [raiser] = [each for each in fleet.processes if each.pid == judge]
    raiser.send_signal(signal.SIGSTOP)
    other = next(each for each in fleet.processes if each is not raiser)
    other.send_signal(signal.SIGKILL)
    await judge_of(db, await judge_of(db) + 3)
    await db.execute("delete from rota.queued")
    await until(db, [(alert_rules.QUEUE_OLD, "nobody", False)], 20)
    raiser.send_signal(signal.SIGCONT)

    assert await fleet.told(db, 2) == [
        f"AlertRaised {alert_rules.QUEUE_OLD}: nobody",
        f"AlertCleared {alert_rules.QUEUE_OLD}: nobody",
    ]
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "nobody", False)]


async def test_of_many_who_ask_one_makes_the_round(rota_dsn: str, db: Sql) -> None:
    lookers = [Looker(rota_dsn) for _ in range(8)]
    await db.execute("select rota.start('work', '{}')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")

    for number in range(1, 4):
        answers = await asyncio.gather(*(each.round.evaluate(0.2) for each in lookers))
        assert await judge_of(db) == number
        assert sum(len(changed) for changed, _ in answers) == (1 if number == 1 else 0)
        await asyncio.sleep(0.21)
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "default", True)]
    for each in lookers:
        await each.close()


async def test_who_was_away_for_a_round_changes_nothing(
    rota_dsn: str, db: Sql, looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance has observed an alert and freezes before writing it. Meanwhile another instance makes a
    round, so the observation is outdated.
    """
    late = Looker(rota_dsn)
    await db.execute("select rota.start('work', '{}')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")
    look = late.round._observe

    async def frozen(now: object) -> object:
        seen = await look(now)  # type: ignore[arg-type]
        await db.execute("delete from rota.queued")
        assert await looker.look() == []
        return seen

    monkeypatch.setattr(late.round, "_observe", frozen)

    assert await late.look() == []
    assert await rows(db) == []
    await late.close()


async def test_a_clock_that_was_put_back_stops_nobody(db: Sql, looker: Looker) -> None:
    await looker.look()
    await db.execute("update rota.alert_rounds set at = now() + interval '1 day'")
    await looker.round.evaluate(60.0)
    assert await judge_of(db) == 2
