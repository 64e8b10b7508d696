"""What one believes who stands for election: by the clock, whoever has noticed, and never once more."""

from __future__ import annotations

import os

import pytest

from rota.coord import trust
from rota.coord.candidate import PROBE, TRUST, Candidate

LEASE = 10.0


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(trust, "now", lambda: clock.now)
    return clock


class Told(list[tuple[str, int]]):
    def candidate(self) -> Candidate:
        return Candidate(
            "housekeeping",
            1,
            LEASE,
            "",
            lambda term: self.append(("elected", term)),
            lambda term, why: self.append((why, term)),
        )


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_term_is_trusted_from_when_the_question_was_sent(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    sent = clock.now
    clock.now += 1.5  # the answer took its time
    assert candidate.won(1, sent, LEASE, seated=True)
    assert (candidate.until, candidate.due) == (sent + TRUST * LEASE, sent + PROBE * LEASE)
    assert candidate.leads()
    assert candidate.leads(1)
    assert not candidate.leads(2)
    clock.now = sent + TRUST * LEASE
    assert not candidate.leads()


def test_it_is_over_by_the_clock_though_nobody_has_noticed(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    clock.now += TRUST * LEASE
    assert not candidate.leads()
    assert told == [("elected", 1)]
    assert candidate.lose(1, "ran out")
    assert told == [("elected", 1), ("ran out", 1)]


def test_an_answer_that_comes_too_late_revives_nothing(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    clock.now += TRUST * LEASE - 0.1
    sent = clock.now
    clock.now += 0.2
    assert not candidate.leads()
    assert not candidate.confirmed(1, sent, LEASE)
    assert not candidate.leads()


def test_an_answer_in_time_prolongs_it_from_when_it_was_asked(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    sent = clock.now + 2
    clock.now += 4
    assert candidate.confirmed(1, sent, LEASE)
    assert candidate.until == sent + TRUST * LEASE


def test_what_was_resigned_is_not_brought_back_by_an_answer(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    assert candidate.lose(1, "", abstain=3.0)
    due = candidate.due
    assert not candidate.confirmed(1, clock.now, LEASE)
    # It still leaves it to the others.
    assert candidate.due == due
    assert candidate.abstains()
    candidate.hurry()
    assert candidate.due == due
    clock.now += 3
    candidate.hurry()
    assert candidate.due == 0


def test_an_old_term_is_not_held_because_there_is_a_new_one(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    candidate.lose(1, "cut")
    candidate.won(2, clock.now, LEASE, seated=True)
    assert not candidate.leads(1)
    assert candidate.leads(2)
    assert not candidate.lose(1, "once more")
    assert not candidate.confirmed(1, clock.now, LEASE)
    assert told == [("elected", 1), ("cut", 1), ("elected", 2)]


def test_whoever_has_withdrawn_wins_nothing_any_more(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.withdraw()
    assert not candidate.won(1, clock.now, LEASE, seated=False)
    assert not candidate.leads()
    assert told == []


def test_a_server_that_waits_less_is_trusted_for_less_at_once(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, clock.now, LEASE, seated=True)
    candidate.shorten(2.0)
    assert candidate.until == clock.now + TRUST * 2.0
    assert candidate.due == 0.0
    candidate.shorten(LEASE)
    assert candidate.until == clock.now + TRUST * 2.0


def test_a_child_does_not_lead_because_its_parent_does(told: Told) -> None:
    candidate = told.candidate()
    candidate.won(1, trust.now(), LEASE, seated=True)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"yes" if candidate.leads() else b"no")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"no"
    assert candidate.leads()
    os.close(read)
    os.close(write)
