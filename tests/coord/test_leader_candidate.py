"""Candidate's own view of its term: it ends by the clock, even unnoticed, and never revives."""

from __future__ import annotations

import os

import pytest

from rota.coord import lease_clock
from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE, Candidate

LEASE = 10.0


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_clock, "now", lambda: clock.now)
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
    clock.now += 1.5  # the answer is late
    assert candidate.begin_term(1, sent, LEASE, has_session_lock=True)
    assert (candidate.trusted_until, candidate.due_at) == (
        sent + TRUSTED_SHARE * LEASE,
        sent + PROBE_SHARE * LEASE,
    )
    assert candidate.is_leader()
    assert candidate.is_leader(1)
    assert not candidate.is_leader(2)
    clock.now = sent + TRUSTED_SHARE * LEASE
    assert not candidate.is_leader()


def test_it_is_over_by_the_clock_though_nobody_has_noticed(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    clock.now += TRUSTED_SHARE * LEASE
    assert not candidate.is_leader()
    assert told == [("elected", 1)]
    assert candidate.end_term(1, "ran out")
    assert told == [("elected", 1), ("ran out", 1)]


def test_an_answer_that_comes_too_late_revives_nothing(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    clock.now += TRUSTED_SHARE * LEASE - 0.1
    sent = clock.now
    clock.now += 0.2
    assert not candidate.is_leader()
    assert not candidate.confirm_term(1, sent, LEASE)
    assert not candidate.is_leader()


def test_an_answer_in_time_prolongs_it_from_when_it_was_asked(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    sent = clock.now + 2
    clock.now += 4
    assert candidate.confirm_term(1, sent, LEASE)
    assert candidate.trusted_until == sent + TRUSTED_SHARE * LEASE


def test_what_was_resigned_is_not_brought_back_by_an_answer(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    assert candidate.end_term(1, "", abstain_seconds=3.0)
    due = candidate.due_at
    assert not candidate.confirm_term(1, clock.now, LEASE)
    # The candidate still abstains in favour of other candidates.
    assert candidate.due_at == due
    assert candidate.is_abstaining()
    candidate.make_due()
    assert candidate.due_at == due
    clock.now += 3
    candidate.make_due()
    assert candidate.due_at == 0


def test_an_old_term_is_not_held_because_there_is_a_new_one(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    candidate.end_term(1, "cut")
    candidate.begin_term(2, clock.now, LEASE, has_session_lock=True)
    assert not candidate.is_leader(1)
    assert candidate.is_leader(2)
    assert not candidate.end_term(1, "once more")
    assert not candidate.confirm_term(1, clock.now, LEASE)
    assert told == [("elected", 1), ("cut", 1), ("elected", 2)]


def test_whoever_has_withdrawn_wins_nothing_any_more(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.withdraw()
    assert not candidate.begin_term(1, clock.now, LEASE, has_session_lock=False)
    assert not candidate.is_leader()
    assert told == []


def test_a_server_that_waits_less_is_trusted_for_less_at_once(clock: Clock, told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, clock.now, LEASE, has_session_lock=True)
    candidate.shorten_trust(2.0)
    assert candidate.trusted_until == clock.now + TRUSTED_SHARE * 2.0
    assert candidate.due_at == 0.0
    candidate.shorten_trust(LEASE)
    assert candidate.trusted_until == clock.now + TRUSTED_SHARE * 2.0


def test_a_child_does_not_lead_because_its_parent_does(told: Told) -> None:
    candidate = told.candidate()
    candidate.begin_term(1, lease_clock.now(), LEASE, has_session_lock=True)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, b"yes" if candidate.is_leader() else b"no")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"no"
    assert candidate.is_leader()
    os.close(read)
    os.close(write)
