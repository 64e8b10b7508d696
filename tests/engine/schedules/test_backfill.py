"""Backfill: runs for past ticks that had none. No tick gets two runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest

from rota import ArgumentError, Rota
from rota.engine.scheduling import backfill
from rota.testing import Harness
from support.schedule_fixtures import Seen

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
PARIS = ZoneInfo("Europe/Paris")


async def test_backfill_starts_past_ticks_marked_as_backfilled(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="0 * * * *", input={"day": "friday"})

    runs = await app.schedules.backfill("x", NOON - 3 * HOUR, NOON)
    await rota_harness.run_until_idle()

    hours = [NOON - 3 * HOUR, NOON - 2 * HOUR, NOON - HOUR]
    assert sorted(seen, key=lambda each: str(each[1])) == [("friday", each, True) for each in hours]
    assert [await run.result() for run in runs] == ["friday"] * 3
    assert (await app.schedules.get("x")).runs == 0
    assert (await app.schedules.get("x")).next[0] == NOON + HOUR


async def test_backfill_of_flow_marks_every_task(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "etl", cron="0 * * * *", input={"day": "friday"})

    await app.schedules.backfill("x", NOON - HOUR, NOON)
    await rota_harness.run_until_idle()

    assert seen == [("friday", NOON - HOUR, True)] * 2


async def test_backfill_starts_only_ticks_without_run(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    clock = rota_harness.clock
    await clock.set(NOON)
    await app.schedules.create("x", "report", cron="0 * * * *", catch_up="none")
    await clock.advance(HOUR)
    await rota_harness.run_until_idle()
    await clock.advance(4 * HOUR + 10 * MINUTE)  # no worker runs until the ticks are too late
    await rota_harness.run_until_idle()
    assert len(seen) == 1

    for _ in range(3):
        await app.schedules.backfill("x", NOON, NOON + 5 * HOUR + MINUTE)
        await rota_harness.run_until_idle()

    assert sorted((tick, late) for _, tick, late in seen if tick) == [
        (NOON, True),
        (NOON + HOUR, False),
        *((NOON + hour * HOUR, True) for hour in (2, 3, 4, 5)),
    ]
    ticks = {each.planned: each for each in await app.schedules.ticks("x")}
    assert len(ticks) == 6
    assert all(each.state == "started" and each.run for each in ticks.values())


async def test_backfill_of_due_tick_prevents_second_run(
    app: Rota, rota_harness: Harness, seen: Seen
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="0 * * * *", catch_up="all")
    await rota_harness.clock.advance(3 * HOUR)

    await app.schedules.backfill("x", NOON + HOUR, NOON + 2 * HOUR)
    await rota_harness.run_until_idle()

    assert sorted((tick, late) for _, tick, late in seen if tick) == [
        (NOON + HOUR, True),
        (NOON + 2 * HOUR, False),
        (NOON + 3 * HOUR, False),
    ]


async def test_backfill_concurrent_calls_start_each_tick_once(
    rota_dsn: str, app: Rota, rota_harness: Harness, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_BATCH_RUNS", 7)
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *")

    async def filling() -> int:
        return len(await app.schedules.backfill("x", NOON - 2 * HOUR, NOON))

    counts = await asyncio.gather(*(filling() for _ in range(4)))
    await rota_harness.run_until_idle()

    assert sum(counts) == 120
    assert len(seen) == len({tick for _, tick, _ in seen}) == 120


async def test_backfill_follows_starts_ends_and_creation_time(
    app: Rota, rota_harness: Harness
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create(
        "x", "report", cron="0 * * * *", starts=NOON - 2 * HOUR, ends=NOON + HOUR
    )
    await app.schedules.create("y", "report", every=HOUR)
    await app.schedules.create("z", "report", every=HOUR, starts=NOON - 2 * HOUR)
    await rota_harness.clock.advance(3 * HOUR)
    day = (NOON - 12 * HOUR, NOON + 3 * HOUR)

    for name, hours in (("x", (-2, -1, 0, 1)), ("y", (1, 2)), ("z", (-2, -1, 0, 1, 2))):
        await app.schedules.backfill(name, *day)
        planned = {each.planned for each in await app.schedules.ticks(name)}
        assert planned == {NOON + hour * HOUR for hour in hours}, name


async def test_backfill_in_batches_reports_progress(
    app: Rota, rota_harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "MAX_BATCH_RUNS", 50)
    monkeypatch.setattr(backfill, "MAX_BATCH_JOBS", 80)
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *")
    await app.schedules.create("y", "etl", cron="* * * * *", input={"day": "friday"})
    told: list[tuple[int, int]] = []

    def tell(done: int, many: int) -> None:
        told.append((done, many))

    runs = await app.schedules.backfill("x", NOON - 2 * HOUR, NOON, on_progress=tell)
    assert (len(runs), told) == (120, [(50, 120), (100, 120), (120, 120)])

    told.clear()
    runs = await app.schedules.backfill("y", NOON - HOUR, NOON, on_progress=tell)
    assert (len(runs), told) == (60, [(40, 60), (60, 60)])  # two jobs in each run


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (NOON - HOUR, NOON + HOUR, r"ends at now \(2026-03-02 12:00:00"),
        (NOON - 9000 * HOUR, NOON, r"more than 10,000 ticks.*backfill a shorter one: up to 20"),
        (NOON.replace(tzinfo=None), NOON, "has no time zone"),
    ],
)
async def test_backfill_invalid_range_is_refused(
    app: Rota, rota_harness: Harness, start: datetime, end: datetime, reason: str
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *")

    with pytest.raises(ArgumentError, match=reason):
        await app.schedules.backfill("x", start, end)
    assert await app.schedules.ticks("x") == []


async def test_backfill_of_pruned_ticks_is_refused(
    app: Rota, rota_harness: Harness, rota_dsn: str
) -> None:
    """Only the last thousand ticks are stored: earlier ticks may have had a run."""
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *", overlap="allow", catch_up="all")
    runs = await app.schedules.backfill("x", NOON - HOUR, NOON)
    assert len(runs) == 60
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        # As after 2000 more ticks, one a minute, up to NOON + 2000 minutes.
        connection.execute(
            "insert into rota.ticks (schedule, tick, number, state, at, host, pid, run)"
            " select 'x', %(noon)s + n * interval '1 minute', n, 'started',"
            "        %(noon)s + n * interval '1 minute', 'web-1', 1, n"
            "   from generate_series(1001, 2000) n",
            {"noon": NOON},
        )
        connection.execute(
            "update rota.schedules set ticks = 2000, next = %(next)s, due = %(next)s",
            {"next": NOON + 2001 * MINUTE},
        )
    await rota_harness.clock.set(NOON + 2000 * MINUTE)

    async def filled(start: datetime, end: datetime) -> int:
        return len(await app.schedules.backfill("x", start, end))

    with pytest.raises(
        ArgumentError, match=r"last thousand ticks, back to 2026-03-03 04:41:00.*; backfill a later"
    ):
        await filled(NOON, NOON + 1500 * MINUTE)
    assert await filled(NOON + 1002 * MINUTE, NOON + 2000 * MINUTE) == 0
    assert await filled(NOON - HOUR, NOON) == 0


async def test_backfill_after_refused_ticks_accepts_earlier_range(
    app: Rota, rota_harness: Harness, rota_dsn: str
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *", overlap="allow", catch_up="all")
    await rota_harness.clock.advance(10 * MINUTE)
    await rota_harness.run_until_idle()
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("update rota.ticks set state = 'refused', run = null where number <= 5")
    assert len(await app.schedules.backfill("x", NOON, NOON + 9 * MINUTE)) == 6
    # There were no earlier ticks, so none were pruned.
    assert len(await app.schedules.backfill("x", NOON - 5 * MINUTE, NOON + 9 * MINUTE)) == 5


async def test_backfill_of_pruned_ticks_after_open_run_is_refused(
    app: Rota, rota_harness: Harness, rota_dsn: str
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *", overlap="allow")
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        # Of 2000 ticks, the last thousand are stored, and the first, because its run is still open.
        connection.execute(
            "insert into rota.ticks (schedule, tick, number, state, at, host, pid, run)"
            " select 'x', %(noon)s + n * interval '1 minute', n, 'started',"
            "        %(noon)s + n * interval '1 minute', 'web-1', 1, n"
            "   from generate_series(1, 2000) n where n = 1 or n > 1000",
            {"noon": NOON},
        )
        connection.execute("update rota.schedules set ticks = 2000, due = null, next = null")
    await rota_harness.clock.set(NOON + 2000 * MINUTE)
    with pytest.raises(ArgumentError, match="stores its last thousand ticks"):
        await app.schedules.backfill("x", NOON + 2 * MINUTE, NOON + 1500 * MINUTE)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        # The local time goes from 02:00 to 03:00, which is 01:00 in UTC.
        (datetime(2026, 3, 29, 3, 0, tzinfo=PARIS), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),
        # The local time goes from 03:00 back to 02:00: the second 02:00 is 01:00 in UTC.
        (datetime(2026, 10, 25, 2, 0, tzinfo=PARIS, fold=1), datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ],
)
async def test_backfill_start_is_exact_at_daylight_saving_change(
    app: Rota, rota_harness: Harness, start: datetime, first: datetime
) -> None:
    await rota_harness.clock.set(first + 2 * HOUR)
    await app.schedules.create("x", "report", cron="*/30 * * * *", tz="Europe/Paris")
    await app.schedules.backfill("x", start, (first + HOUR).astimezone(PARIS))
    planned = sorted(tick.planned for tick in await app.schedules.ticks("x"))
    assert planned == [first, first + HOUR / 2]


async def test_backfill_beyond_tick_limit_keeps_scheduled_ticks(
    app: Rota, rota_harness: Harness, rota_dsn: str
) -> None:
    await rota_harness.clock.set(NOON)
    await app.schedules.create("x", "report", cron="* * * * *")
    await rota_harness.clock.advance(MINUTE)
    await rota_harness.run_until_idle()

    for part in (2, 1):
        end = NOON - (part - 1) * 20 * HOUR
        assert len(await app.schedules.backfill("x", end - 20 * HOUR, end)) == 1200
    await rota_harness.clock.advance(MINUTE)
    async with app.worker():
        async with asyncio.timeout(60):
            while (
                not (last := (await app.schedules.get("x")).last) or last.planned == NOON + MINUTE
            ):
                await asyncio.sleep(0.02)

    assert len(await app.schedules.ticks("x", 5000)) == 2402
    assert await app.schedules.backfill("x", NOON - HOUR, NOON + 2 * MINUTE) != []
    assert await app.schedules.backfill("x", NOON - HOUR, NOON + 2 * MINUTE) == []
