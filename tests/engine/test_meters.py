"""What is counted: each job once, by its place, and never more places than there is room for."""

from __future__ import annotations

from typing import Any

from rota.engine.desk import Batch
from rota.engine.meters import MOST_PLACES, OTHER, Counted, Meters
from rota.model.outcome import Again, Asleep, Ended, Judged
from rota.store.jobs import Claimed


def job(number: int, task: str = "work", queue: str = "default", waited: float = 0.5) -> Claimed:
    one: Any = Claimed(1, number, 1, 0, 0, number, task, queue, "{}", None, None, None, None)
    one.waited = waited
    claimed: Claimed = one
    return claimed


def test_every_end_counts_for_what_it_is() -> None:
    meters = Meters()
    meters.ended(
        Batch(
            done=[(job(1), None, 0.1), (job(2), None, 0.2)],
            ended=[(job(3), Ended("failed", None), 0.3), (job(4), Ended("expired", None), 0.0)],
            again=[(job(5), Again(1.0, "{}"), 0.4)],
            judged=[(job(6), Judged("quarantined", "{}"))],
            unstarted=[job(7)],
            recorded=[(job(8), 0.5)],
            asleep=[(job(9), Asleep((), ()), 0.6)],
        )
    )
    line = meters.lines["default", "work"]

    assert (line.succeeded, line.failed, line.expired, line.retried) == (3, 1, 1, 1)
    assert (line.quarantined, line.given_back, line.slept) == (1, 1, 1)
    # What never began took no time, and would make the rest look shorter.
    assert line.took.count == 6
    assert abs(line.took.total - 2.1) < 1e-9


def test_what_was_refused_is_counted_as_that_alone() -> None:
    meters = Meters()
    batch = Batch(
        done=[(job(number), None, 0.1) for number in range(20)],
        ended=[(job(30), Ended("failed", None), 0.1)],
        again=[(job(31), Again(1.0, "{}"), 0.1)],
    )
    meters.ended(batch, {3, 4, 30, 31})

    assert meters.refused == 4
    line = meters.lines["default", "work"]
    assert (line.succeeded, line.failed, line.retried, line.took.count) == (18, 0, 0, 18)


def test_a_batch_of_several_places_is_told_apart() -> None:
    meters = Meters()
    jobs = [job(number, f"task{number % 3}", f"queue{number % 2}") for number in range(60)]
    meters.claimed(jobs)
    meters.ended(Batch(done=[(each, None, 0.1) for each in jobs]))

    assert len(meters.lines) == 6
    assert {line.claimed for line in meters.lines.values()} == {10}
    assert {line.succeeded for line in meters.lines.values()} == {10}
    assert (meters.found, meters.empty, meters.batches.count) == (1, 0, 1)


def test_a_wait_that_nobody_knows_is_no_wait() -> None:
    meters = Meters()
    meters.claimed([job(1, waited=-1.0), *(job(number) for number in range(2, 20))])
    line = meters.lines["default", "work"]

    assert (line.claimed, line.waited.count) == (19, 18)
    assert abs(line.waited.total - 9.0) < 1e-9


def test_places_are_bounded_and_the_rest_counted_together() -> None:
    meters = Meters()
    for number in range(MOST_PLACES + 50):
        meters.claimed([job(number, f"task{number}")])

    assert len(meters.lines) == MOST_PLACES + 1
    assert meters.lines[OTHER].claimed == 50


def test_a_life_that_ended_still_counts_and_once() -> None:
    counted = Counted()
    one, two = counted.begin(), counted.begin()
    one.claimed([job(1)])
    two.claimed([job(2), job(3)])
    one.started["work"] += 1
    counted.end(one)
    counted.end(one)

    assert counted.sum().lines["default", "work"].claimed == 3
    assert counted.sum().started == {"work": 1}
    two.claimed([job(4)])
    assert counted.sum().lines["default", "work"].claimed == 4


def test_arrivals_are_bounded_too() -> None:
    counted = Counted()
    for number in range(MOST_PLACES + 7):
        counted.arrive(("default", f"task{number}"), 2)

    assert len(counted.arrived) == MOST_PLACES + 1
    assert counted.arrived[OTHER] == 14
