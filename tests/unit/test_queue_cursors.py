"""Queue cursors: the start of each lane's read, the rate of full reads, and no starvation of a lane.

The tests use a queue in memory that is read in the same way as by the claim statement.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.engine.worker.queue_cursors import (
    FULL_READ_PAUSE_FACTOR,
    OLDEST_FIRST_TURNS,
    PRIORITIES,
    QueueCursors,
    ReadPlan,
)


@dataclass(slots=True)
class FoundJob:
    lane: int
    seq: int


@dataclass
class InMemoryQueues:
    """Queued jobs in memory, and a clock."""

    floors: QueueCursors
    ready: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    now: float = 100.0

    def put(self, *seqs: int, queue: str = "q", lane: int = 0) -> None:
        place = self.ready.setdefault((queue, lane), [])
        place.extend(seqs)
        place.sort()

    def claim(self, limit: int = 2, full_took: float = 0.001) -> tuple[list[int], ReadPlan]:
        """Claim up to `limit` jobs, as the statement does, and record the result in the cursors."""
        look = self.floors.plan(self.now)
        found: list[FoundJob] = []
        for number, (queue, lane, floor) in enumerate(
            zip(look.queues, look.priorities, look.cursors, strict=True), 1
        ):
            place = self.ready.get((queue, lane), [])
            for seq in [seq for seq in place if seq >= floor][: limit - len(found)]:
                place.remove(seq)
                found.append(FoundJob(number, seq))
        took = full_took if look.is_full else 0.001
        self.now += took
        self.floors.record(look, found, limit, took, self.now)
        return [each.seq for each in found], look


def test_cursors_plan_reads_priorities_from_nine_to_zero() -> None:
    look = QueueCursors(["q"]).plan(0.0)

    assert look.priorities == list(PRIORITIES) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert set(look.queues) == {"q"}


def test_cursors_plan_rotates_queues_of_one_priority() -> None:
    floors = QueueCursors(["a", "b", "c"])

    first = [floors.plan(0.0).queues[0] for _ in range(OLDEST_FIRST_TURNS - 1)]

    assert set(first) == {"a", "b", "c"}
    for look in (floors.plan(0.0) for _ in range(3)):
        assert sorted(zip(look.queues, look.priorities, strict=True)) == sorted(
            (queue, lane) for queue in "abc" for lane in PRIORITIES
        )


def test_cursors_first_plan_is_a_full_read() -> None:
    look = QueueCursors(["q"]).plan(0.0)

    assert look.is_full
    assert set(look.cursors) == {0}


def test_cursors_partial_read_starts_at_lowest_job_found() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.put(10, 11, 12, 13)
    queues.put(500, lane=3)

    queues.claim(limit=4, full_took=10.0)
    _, look = queues.claim()

    floors = dict(zip(look.priorities, look.cursors, strict=True))
    assert (look.is_full, floors[0], floors[3], floors[7]) == (False, 10, 500, 0)


def test_cursors_cheap_full_reads_are_used_nearly_always() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    looks = []
    for number in range(50):
        queues.put(number + 1)
        queues.now += 0.005
        looks.append(queues.claim()[1].is_full)

    assert sum(looks) > 40


def test_cursors_expensive_full_reads_take_a_bounded_time_share() -> None:
    """Under an old snapshot a full read scans every row that was claimed since."""
    queues = InMemoryQueues(QueueCursors(["q"]))
    for _ in range(100):  # the cursors measure the cost
        queues.now += 10
        queues.claim(full_took=0.2)

    began, dear = queues.now, 0
    for _ in range(5000):
        queues.put(1000)
        dear += queues.claim(full_took=0.2)[1].is_full

    assert dear > 1
    assert dear * 0.2 / (queues.now - began) < 1.5 / FULL_READ_PAUSE_FACTOR


def test_cursors_job_below_cursor_is_found_by_next_full_read() -> None:
    """Its producer committed late, or the job returned to the queue under its old number."""
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.put(*range(100, 120))
    queues.claim(limit=2, full_took=1.0)
    queues.put(5)

    seen: list[int] = []
    for _ in range(20_000):
        found, _ = queues.claim(limit=2, full_took=1.0)
        seen += found
        if 5 in seen:
            break
        queues.put(*(seq + 1000 for seq in found))  # more jobs above the cursor

    assert 5 in seen
    assert queues.now - 100.0 < (FULL_READ_PAUSE_FACTOR + 2) * 1.0


def test_cursors_short_partial_read_requests_a_full_read() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.put(100, 101)
    queues.claim(limit=2, full_took=1.0)
    assert queues.floors.full_read_at is None

    _, look = queues.claim()

    assert not look.is_full
    assert queues.floors.full_read_at is not None
    assert queues.floors.full_read_at > queues.now


def test_cursors_short_full_read_requests_no_further_read() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))

    queues.claim()

    assert queues.floors.full_read_at is None


def test_cursors_full_read_filled_below_cursor_requests_another() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.put(1000)
    queues.claim(limit=1)
    queues.now += 10
    queues.put(1, 2, 3, 4)

    found, look = queues.claim(limit=2)

    assert (found, look.is_full) == ([1, 2], True)
    assert queues.floors.full_read_at is not None


def test_cursors_request_full_read_plans_a_full_read() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.claim()

    queues.floors.request_full_read()

    assert queues.floors.full_read_at is not None


def test_cursors_job_below_cursor_leaves_cursor_unchanged() -> None:
    """Otherwise the cursor would have to pass all dead index entries again."""
    queues = InMemoryQueues(QueueCursors(["q"]))
    queues.put(1000, 1001)
    queues.claim(limit=1, full_took=0.001)
    queues.now += 10
    queues.put(7)
    queues.claim(limit=1, full_took=5.0)

    _, look = queues.claim()

    assert dict(zip(look.priorities, look.cursors, strict=True))[0] == 1000


def test_cursors_busy_priority_does_not_starve_lower_priority() -> None:
    """Every `OLDEST_FIRST_TURNS` turns, the lane with the oldest job is read first."""
    queues = InMemoryQueues(QueueCursors(["q"]))
    seq = 1
    queues.put(seq, lane=0)
    served_at = None
    for turn in range(1, 200):
        while len(queues.ready.get(("q", 9), [])) < 10:
            seq += 1
            queues.put(seq, lane=9)
        found, _ = queues.claim(limit=2)
        if 1 in found:
            served_at = turn
            break

    assert served_at is not None
    assert served_at <= OLDEST_FIRST_TURNS


def test_cursors_low_priority_jobs_under_load_are_all_claimed() -> None:
    queues = InMemoryQueues(QueueCursors(["q"]))
    seq = 100
    queues.put(*range(1, 21), lane=2)
    left = set(range(1, 21))
    for _ in range(40 * OLDEST_FIRST_TURNS):
        while len(queues.ready.get(("q", 9), [])) < 10:
            seq += 1
            queues.put(seq, lane=9)
        found, _ = queues.claim(limit=2, full_took=0.05)
        left -= set(found)

    assert left == set()
