"""Candidate's own view of its term: it ends by the clock, even unnoticed, and never revives."""

from __future__ import annotations

import os

import pytest

from rota.coord.candidate import PROBE_SHARE, TRUSTED_SHARE, Candidate
from support.owned_clock import OwnedClock

LEASE = 10.0


@pytest.fixture
def clock() -> OwnedClock:
    return OwnedClock()


class CandidateCallbacks(list[tuple[str, int]]):
    def __init__(self, clock: OwnedClock) -> None:
        self._clock = clock

    def candidate(self) -> Candidate:
        return Candidate(
            "housekeeping",
            1,
            LEASE,
            "",
            self._clock,
            lambda term: self.append(("elected", term)),
            lambda term, why: self.append((why, term)),
        )


@pytest.fixture
def callbacks(clock: OwnedClock) -> CandidateCallbacks:
    return CandidateCallbacks(clock)


def test_candidate_term_is_trusted_from_the_time_of_the_request(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    sent = clock.now()
    clock.advance(1.5)  # the answer is late
    assert candidate.begin_term(1, sent, LEASE, has_session_lock=True)
    assert (candidate.trusted_until, candidate.due_at) == (
        sent + TRUSTED_SHARE * LEASE,
        sent + PROBE_SHARE * LEASE,
    )
    assert candidate.is_leader()
    assert candidate.is_leader(1)
    assert not candidate.is_leader(2)
    clock.advance_to(sent + TRUSTED_SHARE * LEASE)
    assert not candidate.is_leader()


def test_candidate_unnoticed_expiry_ends_leadership(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    clock.advance(TRUSTED_SHARE * LEASE)
    assert not candidate.is_leader()
    assert callbacks == [("elected", 1)]
    assert candidate.end_term(1, "ran out")
    assert callbacks == [("elected", 1), ("ran out", 1)]


def test_candidate_late_confirmation_does_not_revive_the_term(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    clock.advance(TRUSTED_SHARE * LEASE - 0.1)
    sent = clock.now()
    clock.advance(0.2)
    assert not candidate.is_leader()
    assert not candidate.confirm_term(1, sent, LEASE)
    assert not candidate.is_leader()


def test_candidate_confirmation_extends_trust_from_the_request(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    sent = clock.now() + 2
    clock.advance(4)
    assert candidate.confirm_term(1, sent, LEASE)
    assert candidate.trusted_until == sent + TRUSTED_SHARE * LEASE


def test_candidate_confirmation_after_resignation_is_ignored(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    assert candidate.end_term(1, "", abstain_seconds=3.0)
    due = candidate.due_at
    assert not candidate.confirm_term(1, clock.now(), LEASE)
    # The candidate still abstains in favour of other candidates.
    assert candidate.due_at == due
    assert candidate.is_abstaining()
    candidate.make_due()
    assert candidate.due_at == due
    clock.advance(3)
    candidate.make_due()
    assert candidate.due_at == 0


def test_candidate_new_term_does_not_restore_the_old_one(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    candidate.end_term(1, "cut")
    candidate.begin_term(2, clock.now(), LEASE, has_session_lock=True)
    assert not candidate.is_leader(1)
    assert candidate.is_leader(2)
    assert not candidate.end_term(1, "once more")
    assert not candidate.confirm_term(1, clock.now(), LEASE)
    assert callbacks == [("elected", 1), ("cut", 1), ("elected", 2)]


def test_candidate_withdrawn_cannot_begin_a_term(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.withdraw()
    assert not candidate.begin_term(1, clock.now(), LEASE, has_session_lock=False)
    assert not candidate.is_leader()
    assert callbacks == []


def test_candidate_shorter_server_lease_shortens_trust_at_once(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
    candidate.shorten_trust(2.0)
    assert candidate.trusted_until == clock.now() + TRUSTED_SHARE * 2.0
    assert candidate.due_at == 0.0
    candidate.shorten_trust(LEASE)
    assert candidate.trusted_until == clock.now() + TRUSTED_SHARE * 2.0


def test_candidate_in_forked_child_is_not_leader(
    clock: OwnedClock, callbacks: CandidateCallbacks
) -> None:
    candidate = callbacks.candidate()
    candidate.begin_term(1, clock.now(), LEASE, has_session_lock=True)
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
