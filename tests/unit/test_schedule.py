"""Decisions of a schedule, policy by policy. `test_schedule_lives` combines all policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from rota.errors import ArgumentError
from rota.model.schedule import (
    MIN_RECHECK,
    SchedulePosition,
    TickDecision,
    decide,
    first_tick,
    is_ahead_of_clock,
)
from rota.model.schedule_options import MAX_TICKS, CatchUp, SchedulePolicy
from rota.model.timetable import Timetable
from support.executed_lines import count_lines

BEGIN = datetime(2026, 3, 28, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)


def decide_hourly(
    policy: SchedulePolicy,
    hours: float = 5.5,
    *,
    busy: bool = False,
    queued: datetime | None = None,
    runs: int = 0,
) -> TickDecision:
    """Decide for an hourly schedule that was not polled for some hours: the first due tick is 00:00."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    position = SchedulePosition(begin, begin, queued, runs, busy)
    return decide(Timetable("0 * * * *"), policy, position, begin + hours * HOUR, lambda: 0.5)


def hours(ticks: list[datetime]) -> list[int]:
    return [tick.hour for tick in ticks]


def skipped(decision: TickDecision) -> list[tuple[int, str]]:
    return [(tick.hour, state) for tick, state, _ in decision.skip]


def test_schedule_late_poll_starts_latest_tick_and_counts_the_rest() -> None:
    decision = decide_hourly(SchedulePolicy())

    assert hours(decision.start) == [5]
    assert decision.missed == 5
    assert decision.next is not None
    assert decision.next.hour == 6


def test_schedule_catch_up_none_allows_one_minute_of_delay() -> None:
    assert hours(decide_hourly(SchedulePolicy(catch_up="none"), 5 + 60 / 3600).start) == [5]
    decision = decide_hourly(SchedulePolicy(catch_up="none"), 5 + 61 / 3600)

    assert decision.start == []
    assert skipped(decision) == [(5, "missed")]
    assert decision.missed == 5


def test_schedule_catch_up_all_starts_latest_at_most_ticks() -> None:
    decision = decide_hourly(SchedulePolicy(catch_up="all", at_most=3))

    assert hours(decision.start) == [3, 4, 5]
    assert decision.missed == 3


def test_schedule_overlap_skip_with_open_run_skips_all_ticks() -> None:
    decision = decide_hourly(SchedulePolicy("skip", "all", at_most=3), busy=True)

    assert decision.start == []
    assert skipped(decision) == [(3, "skipped"), (4, "skipped"), (5, "skipped")]


def test_schedule_queue_one_with_open_run_queues_first_tick() -> None:
    decision = decide_hourly(SchedulePolicy("queue_one", "all", at_most=3), busy=True)

    assert decision.start == []
    assert skipped(decision) == [(3, "queued"), (4, "skipped"), (5, "skipped")]
    assert decision.queued is not None
    assert decision.queued.hour == 3


def test_schedule_cancel_running_starts_only_the_latest_tick() -> None:
    decision = decide_hourly(SchedulePolicy("cancel_running", "all"), busy=True)

    assert decision.cancel_open_runs
    assert hours(decision.start) == [5]
    assert decision.missed == 5


def test_schedule_queued_tick_starts_after_run_ends_despite_grace() -> None:
    before = datetime(2025, 12, 31, 20, tzinfo=UTC)
    policy = SchedulePolicy("queue_one", grace=60)

    assert decide_hourly(policy, -1, busy=True, queued=before).start == []
    assert decide_hourly(policy, -1, busy=False, queued=before).start == [before]


def test_schedule_tick_due_with_queued_start_is_queued_next() -> None:
    before = datetime(2025, 12, 31, 20, tzinfo=UTC)
    decision = decide_hourly(SchedulePolicy("queue_one"), queued=before)

    assert decision.start == [before]
    assert skipped(decision) == [(5, "queued")]


def test_schedule_queued_tick_waits_after_clock_is_set_back() -> None:
    queued = datetime(2025, 12, 31, 23, tzinfo=UTC)
    decision = decide_hourly(SchedulePolicy("queue_one"), -3, queued=queued)

    assert decision.start == []
    assert decision.due == decision.queued == queued


def test_schedule_new_queued_tick_is_rechecked_after_minimum_interval() -> None:
    decision = decide_hourly(SchedulePolicy("queue_one"), 0, busy=True)

    assert decision.queued is not None
    assert decision.due == decision.queued + MIN_RECHECK


@pytest.mark.parametrize(("waited", "rest"), [(20, 1), (60, 3), (300, 15), (86400, 15)])
def test_schedule_recheck_interval_grows_with_waiting_time(waited: float, rest: float) -> None:
    now = datetime(2025, 12, 31, 20, tzinfo=UTC)
    decision = decide_hourly(
        SchedulePolicy("queue_one"), -4, busy=True, queued=now - timedelta(seconds=waited)
    )

    assert decision.due == now + timedelta(seconds=rest)


def test_schedule_queued_start_is_not_cancelled_in_same_poll() -> None:
    """This occurs if the policy changes from `queue_one` to `cancel_running` while a tick is queued."""
    before = datetime(2025, 12, 31, 20, tzinfo=UTC)
    decision = decide_hourly(SchedulePolicy("cancel_running"), queued=before)

    assert decision.start == [before]
    assert not decision.cancel_open_runs
    assert decision.due is not None
    assert hours([decision.due]) == [0], "at once"


def test_schedule_tick_beyond_grace_plus_jitter_is_missed() -> None:
    assert skipped(decide_hourly(SchedulePolicy(catch_up="all", grace=5400))) == [
        *((0, "missed"), (1, "missed"), (2, "missed"), (3, "missed"))
    ]
    assert hours(decide_hourly(SchedulePolicy(grace=1800 - 600, jitter=600)).start) == [5]
    assert skipped(decide_hourly(SchedulePolicy(grace=1800 - 601, jitter=600))) == [(5, "missed")]


def test_schedule_ends_after_max_runs() -> None:
    decision = decide_hourly(SchedulePolicy("allow", "all", max_runs=5), runs=3)

    assert hours(decision.start) == [0, 1]
    assert (decision.next, decision.queued, decision.due) == (None, None, None)


def test_schedule_max_runs_reached_drops_queued_tick() -> None:
    """This occurs if an operator lowers `max_runs`."""
    before = datetime(2025, 12, 31, 20, tzinfo=UTC)
    decision = decide_hourly(SchedulePolicy("queue_one", max_runs=2), queued=before, runs=2)

    assert decision.start == []
    assert (decision.next, decision.queued, decision.due) == (None, None, None)


def test_schedule_last_tick_may_equal_its_end() -> None:
    end = datetime(2026, 1, 1, 3, tzinfo=UTC)
    decision = decide_hourly(SchedulePolicy(catch_up="all", ends=end))

    assert hours(decision.start) == [0, 1, 2, 3]
    assert decision.next is None
    assert decision.due is None


def test_schedule_catch_up_of_max_ticks_keeps_next_tick() -> None:
    decision = decide_hourly(SchedulePolicy("allow", "all", at_most=MAX_TICKS), 5000.5)

    assert len(decision.start) == MAX_TICKS
    assert decision.missed == 4001
    assert decision.next is not None


@pytest.mark.parametrize(
    "timetable", [Timetable(every=1), Timetable("* * * * * *", "Europe/Berlin")], ids=str
)
@pytest.mark.parametrize("catch_up", get_args(CatchUp))
def test_schedule_decide_after_year_of_seconds_counts_no_ticks(
    timetable: Timetable, catch_up: Any
) -> None:
    now = BEGIN + timedelta(days=365)
    policy, position = SchedulePolicy("allow", catch_up), SchedulePosition(BEGIN, BEGIN)

    decision = decide(timetable, policy, position, now)

    # There were 31,536,000 ticks.
    assert count_lines(lambda: decide(timetable, policy, position, now)) < 100_000
    assert decision.start[-1] == now
    assert len(decision.start) == (100 if catch_up == "all" else 1)
    assert len(decision.start) + decision.missed == 365 * 86400 + 1


# Start


def test_schedule_single_time_starts_late_unless_policy_forbids() -> None:
    past = Timetable(at=BEGIN - 10 * HOUR)
    tick = first_tick(past, SchedulePolicy(), BEGIN, BEGIN)
    for policy, expected in (
        (SchedulePolicy(), [past.at]),
        (SchedulePolicy(catch_up="all"), [past.at]),
        (SchedulePolicy(catch_up="none"), []),
        (SchedulePolicy(grace=3600), []),
    ):
        decision = decide(past, policy, SchedulePosition(tick, BEGIN), BEGIN)

        assert decision.start == expected
        assert (decision.next, decision.due) == (None, None)


@pytest.mark.parametrize("timetable", [Timetable(every=3600), Timetable("0 * * * *")], ids=str)
def test_schedule_first_tick_is_not_before_its_start(timetable: Timetable) -> None:
    begin = datetime(2026, 6, 1, 9, tzinfo=UTC)
    policy = SchedulePolicy(starts=begin, ends=begin + HOUR / 2)

    assert first_tick(timetable, policy, BEGIN, begin) == begin
    assert first_tick(timetable, policy, begin, begin) is None, "the next one is after its end"


def test_schedule_clock_set_back_leaves_position_ahead_of_clock() -> None:
    timetable, policy = Timetable("0 * * * *"), SchedulePolicy()
    at_ease = SchedulePosition(first_tick(timetable, policy, BEGIN, BEGIN), BEGIN)
    ahead = decide(timetable, policy, at_ease, BEGIN + timedelta(days=4000))
    astray = replace(at_ease, next=ahead.next)

    assert decide(timetable, policy, astray, BEGIN + HOUR).start == [], "each tick once"
    assert is_ahead_of_clock(timetable, policy, astray, BEGIN + HOUR)
    for now in (BEGIN, BEGIN + HOUR, BEGIN + 9 * HOUR):
        assert not is_ahead_of_clock(timetable, policy, at_ease, now)
    assert not is_ahead_of_clock(timetable, policy, replace(at_ease, next=None), BEGIN)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"overlap": "sometimes"}, "overlap is one of skip, queue_one, cancel_running, allow"),
        ({"catch_up": "some"}, "catch_up is one of none, latest, all"),
        ({"at_most": 0}, "at_most is a whole number from 1 to 1,000, not 0"),
        ({"at_most": 1001}, "at_most is a whole number from 1 to 1,000"),
        ({"grace": -1}, "grace is -1 s; it can be from 0"),
        ({"grace": float("inf")}, "grace is inf s"),
        ({"jitter": float("nan")}, "jitter is nan s"),
        ({"max_runs": 0}, "max_runs is a whole number from 1"),
        ({"pause_after": 0}, "pause_after is a whole number from 1"),
        ({"starts": datetime(2026, 1, 1)}, "starts=2026-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
        ({"starts": BEGIN, "ends": BEGIN - HOUR}, "before it starts"),
    ],
)
def test_schedule_policy_invalid_option_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        SchedulePolicy(**given)
