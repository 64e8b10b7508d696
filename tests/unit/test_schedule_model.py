"""Decisions of a schedule, compared with a model that processes every tick one by one.

The model has no calendar and no steps: it has a list of ticks and the rules of each policy.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.model.schedule import (
    MISSED_AFTER,
    SchedulePosition,
    TickDecision,
    decide,
    first_tick,
)
from rota.model.schedule_options import CatchUp, Overlap, SchedulePolicy
from rota.model.timetable import Timetable
from support.scale import scale
from support.timetables import upcoming

BEGIN = datetime(2026, 3, 28, 22, tzinfo=UTC)
HOUR = timedelta(hours=1)
WINDOW = 40 * HOUR


def seconds(many: float) -> timedelta:
    return timedelta(seconds=many)


TIMETABLES = {
    "every 7 minutes": Timetable(every=420),
    "every half minute": Timetable(every=30),
    "the hours": Timetable("0 * * * *", "Europe/Berlin"),
    "now and then": Timetable("*/10 1-3,22 * * *", "Europe/Berlin"),
    "daily, and once in a gap": Timetable("30 2 * * *", "Europe/Berlin"),
    "once": Timetable(at=BEGIN + HOUR),
}

TICKS = {
    name: upcoming(each, BEGIN, BEGIN, 1 + each.count(BEGIN, BEGIN + 4 * WINDOW, BEGIN))
    for name, each in TIMETABLES.items()
}

POLICIES = st.builds(
    SchedulePolicy,
    overlap=st.sampled_from(get_args(Overlap)),
    catch_up=st.sampled_from(get_args(CatchUp)),
    at_most=st.integers(1, 12),
    grace=st.sampled_from([None, None, None, 0.0, 60.0, 900.0, 7200.0]),
    jitter=st.sampled_from([0.0, 0.0, 0.0, 20.0, 600.0, 5000.0]),
    ends=st.sampled_from([None, None, None, *(BEGIN + each * HOUR for each in (1, 10, 20))]),
    max_runs=st.sampled_from([None, None, None, 1, 2, 7, 20]),
)


def model(
    ticks: list[datetime], policy: SchedulePolicy, position: SchedulePosition, now: datetime
) -> TickDecision:
    """Return the decision of one poll by the rules of the policies."""
    runs = position.runs
    told = TickDecision(queued=position.queued)

    def may_start() -> bool:
        return policy.max_runs is None or runs < policy.max_runs

    waited = False
    free = not position.has_open_run or policy.overlap == "allow"
    if position.queued and position.queued <= now and may_start() and free:
        told.start, told.queued, waited = [position.queued], None, True
        runs += 1
    rest = [] if position.next is None else ticks[bisect_left(ticks, position.next) :]
    if policy.ends is not None:
        rest = rest[: bisect_right(rest, policy.ends)]
    due = [
        tick
        for tick in rest[: bisect_right(rest, now)]
        if tick == position.next or tick + seconds(policy.jitter) <= now
    ]
    if waited and policy.overlap == "cancel_running":
        due = []
    rest = rest[len(due) :]
    chosen = due[-1:]
    if policy.catch_up == "all" and policy.overlap != "cancel_running":
        chosen = due[-policy.at_most :]
    told.missed = len(due) - len(chosen)
    for tick in chosen:
        late = now - tick - seconds(policy.jitter)
        grace = policy.grace
        if grace is None and policy.catch_up == "none":
            grace = MISSED_AFTER.total_seconds()
        if grace is not None and late > seconds(grace):
            told.skip.append((tick, "missed", "it was too late"))
            continue
        if not may_start():
            continue
        if (position.has_open_run or waited) and policy.overlap in ("skip", "queue_one"):
            waits = policy.overlap == "queue_one" and told.queued is None
            told.skip.append(
                (tick, "queued" if waits else "skipped", "the run before it has not ended")
            )
            told.queued = tick if waits else told.queued
            continue
        told.cancel_open_runs |= position.has_open_run and policy.overlap == "cancel_running"
        told.start.append(tick)
        runs += 1
    told.next = rest[0] if rest and may_start() else None
    told.queued = told.queued if may_start() else None
    return told


@dataclass
class PolledSchedule:
    """A schedule that is polled at irregular times, with the record of all its decisions."""

    name: str
    policy: SchedulePolicy
    position: SchedulePosition
    started: list[datetime] = field(default_factory=list)
    told: list[tuple[datetime, str]] = field(default_factory=list)
    missed: int = 0
    cancelled: int = 0
    due: datetime | None = None

    @classmethod
    def begin(cls, name: str, policy: SchedulePolicy) -> PolledSchedule:
        tick = first_tick(TIMETABLES[name], policy, BEGIN, BEGIN)
        return cls(name, policy, SchedulePosition(tick, BEGIN), due=tick)

    def look(self, now: datetime, *, busy: bool = False, chance: float = 0.5) -> TickDecision:
        busy = busy and bool(self.started)
        position = replace(self.position, has_open_run=busy)
        made = decide(TIMETABLES[self.name], self.policy, position, now, lambda: chance)
        expected = model(TICKS[self.name], self.policy, position, now)
        expected.due = made.due
        assert made == expected

        assert all(tick <= now for tick in made.start)
        assert made.start == sorted(made.start)
        assert not (made.start and busy and self.policy.overlap in ("skip", "queue_one"))
        assert not made.cancel_open_runs or busy
        assert made.due is None or self.position.next is not None or made.queued is not None
        self.started += made.start
        self.told += [(tick, state) for tick, state, _ in made.skip]
        self.missed += made.missed
        self.cancelled += made.cancel_open_runs
        self.position = replace(
            self.position,
            next=made.next,
            queued=made.queued,
            runs=self.position.runs + len(made.start),
        )
        self.due = made.due
        return made

    def check(self) -> None:
        """Assert that every tick before the position was handled exactly once, and no other tick was."""
        policy, ticks = self.policy, TICKS[self.name]
        assert set(Counter(self.started).values()) <= {1}
        queued = {tick for tick, state in self.told if state == "queued"}
        passed = [tick for tick, state in self.told if state != "queued"]
        assert set(Counter(passed).values()) <= {1}
        assert not set(passed) & (set(self.started) | queued)
        seen = set(self.started) | queued | set(passed)
        assert seen <= set(ticks)
        if policy.max_runs is not None:
            assert self.position.runs <= policy.max_runs
        if policy.ends is not None:
            assert all(tick <= policy.ends for tick in seen)
        if self.position.next is not None:
            behind = [tick for tick in ticks if tick < self.position.next]
            assert len(seen) + self.missed == len(behind)
            assert seen <= set(behind)
        elif policy.max_runs is None:
            before = [tick for tick in ticks if policy.ends is None or tick <= policy.ends]
            assert len(seen) + self.missed == len(before)


LOOKS = st.lists(
    st.tuples(
        st.one_of(  # seconds until the next poll
            st.sampled_from([1, 30, 60, 420, 600, 1800, 3600]),
            st.integers(0, 4 * 3600),
            st.sampled_from([-1, -600, -3600, -7200]),  # the clock is set back
        ),
        st.booleans(),
        st.sampled_from([0.0, 0.3, 0.99]),
    ),
    min_size=10,
    max_size=30,
)


def poll_all(
    name: str, policy: SchedulePolicy, looks: list[tuple[int, bool, float]]
) -> PolledSchedule:
    life = PolledSchedule.begin(name, policy)
    now = BEGIN
    for later, busy, chance in looks:
        now = min(now + seconds(later), BEGIN + WINDOW)
        life.look(now, busy=busy, chance=chance)
    life.check()
    return life


@given(name=st.sampled_from(sorted(TIMETABLES)), policy=POLICIES, looks=LOOKS)
@example(
    "every half minute",
    SchedulePolicy("queue_one", "all", max_runs=3),
    [(60, False, 0.0), (100, True, 0.0), (100, False, 0.0), (9000, False, 0.0)],
)
def test_schedule_polled_at_any_times_handles_each_tick_once(
    name: str, policy: SchedulePolicy, looks: list[tuple[int, bool, float]]
) -> None:
    poll_all(name, policy, looks)


@pytest.mark.timeout(scale(120, 3600))
def test_schedule_many_random_histories_handle_each_tick_once() -> None:
    """Less search than the property test, and more usual cases: polls in time, late polls, and a clock
    that is set back at times."""
    chance = random.Random(7)
    seen: Counter[str] = Counter()
    for _ in range(scale(400, 20_000)):
        name = chance.choice(sorted(TIMETABLES))
        policy = SchedulePolicy(
            overlap=chance.choice(get_args(Overlap)),
            catch_up=chance.choice(get_args(CatchUp)),
            at_most=chance.randint(1, 9),
            grace=chance.choice([None, None, None, 0.0, 60.0, 7200.0]),
            jitter=chance.choice([0.0, 0.0, 20.0, 600.0, 5000.0]),
            ends=chance.choice([None, None, None, BEGIN + 9 * HOUR, BEGIN + 20 * HOUR]),
            max_runs=chance.choice([None, None, None, 2, 7, 20]),
        )
        looks = [
            (
                chance.choice([10, 30, 60, 420, 600, 3600, chance.randint(-7200, 14400)]),
                chance.random() < 0.5,
                chance.random(),
            )
            for _ in range(40)
        ]
        life = poll_all(name, policy, looks)
        seen["started"] += len(life.started)
        seen["passed over"] += life.missed
        seen["cancelled"] += life.cancelled
        seen.update(state for _, state in life.told)

    assert len(seen) == 6
    assert min(seen.values()) > 100, seen


@settings(max_examples=100)
@given(
    name=st.sampled_from(["every 7 minutes", "every half minute", "the hours", "once"]),
    catch_up=st.sampled_from(get_args(CatchUp)),
    jitter=st.sampled_from([0.0, 0.001, 20.0, 420.0, 5000.0]),
    chances=st.lists(st.floats(0, 1, exclude_max=True), min_size=30, max_size=30),
    delay=st.floats(0, 25),
)
def test_schedule_jitter_delays_ticks_without_loss_or_reordering(
    name: str, catch_up: Any, jitter: float, chances: list[float], delay: float
) -> None:
    """The schedule is polled when due or a little later, also if the jitter exceeds the interval."""
    life = PolledSchedule.begin(name, SchedulePolicy("allow", catch_up, jitter=jitter))
    now = BEGIN
    for chance in chances:
        if life.due is None:
            break
        now = max(now, life.due + seconds(delay))
        for tick in life.look(now, chance=chance).start:
            assert tick <= now <= tick + seconds(jitter + delay)
    life.check()
    assert life.missed == 0
    assert life.started == TICKS[name][: len(life.started)]
    assert len(life.started) == (1 if name == "once" else 30)


def test_schedule_next_due_time_is_delayed_by_share_of_jitter() -> None:
    policy = SchedulePolicy(jitter=600)
    dues = []
    for chance in (0.0, 0.25, 0.999):
        life = PolledSchedule.begin("the hours", policy)
        life.look(TICKS["the hours"][0], chance=chance)
        dues.append(life.due)

    second = TICKS["the hours"][1]
    assert dues == [second, second + seconds(150), second + seconds(599.4)]
