"""Known mistakes in the statements of an election: the test of each statement must detect them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable

from rota.store import advisory_locks
from store import test_leaders
from support.elections import BIGINT, SEAT, Election, mutate_statement, replace_session_lock

Check = Callable[[Election], Awaitable[Any]]

MISTAKES: list[tuple[str, str, str, Check]] = [
    (
        "leader/elect",
        "and (select session_lock.acquired from session_lock)\n       and (leaders",
        "and (leaders",
        test_leaders.test_leader_election_without_session_lock_is_refused,
    ),
    (
        "leader/elect",
        "then pg_try_advisory_xact_lock(%(namespace)s::int, %(session_lock)s::int)",
        "then true",
        test_leaders.test_leader_session_lock_excludes_session_locks_and_leases,
    ),
    (
        "leader/elect",
        "or leaders.expires <= rota.clock())",
        "or leaders.expires is not null)",
        test_leaders.test_leader_lease_excludes_session_locks_and_leases,
    ),
    (
        "leader/elect",
        "for update skip locked",
        "",
        test_leaders.test_leader_asserted_term_blocks_elections,
    ),
    (
        "leader/elect",
        "term = leaders.term + 1",
        "term = leaders.term",
        test_leaders.test_leader_terms_only_rise_for_any_winner_and_end,
    ),
    (
        "leader/elect",
        "[greatest(cardinality(leaders.elections) - 8, 1):]",
        "",
        test_leaders.test_leader_recent_elections_are_counted_and_bounded,
    ),
    (
        "leader/renew",
        "       and leaders.expires > rota.clock()\n",
        "",
        test_leaders.test_leader_expired_lease_is_not_renewed,
    ),
    (
        "leader/renew",
        "skip locked",
        "",
        test_leaders.test_leader_locked_row_does_not_block_renew_or_resign,
    ),
    (
        "leader/probe",
        "and leaders.term = given.term",
        "",
        test_leaders.test_leader_probe_with_session_lock_but_wrong_term_fails,
    ),
    (
        "leader/probe",
        "and held.pid = pg_backend_pid()",
        "",
        test_leaders.test_leader_probe_ignores_session_lock_of_another_candidate,
    ),
    (
        "leader/resign",
        "and leaders.term = %(term)s::bigint",
        "",
        test_leaders.test_leader_resign_of_an_old_term_changes_nothing,
    ),
    (
        "leader/unlock_session",
        "pg_advisory_unlock(%(namespace)s::int, session_lock)",
        "session_lock",
        test_leaders.test_leader_resigned_term_is_kept_and_next_is_higher,
    ),
]


@pytest.mark.parametrize(
    ("statement", "right", "wrong", "check"),
    MISTAKES,
    ids=[f"{statement}: {right.strip()[:40]}" for statement, right, _, _ in MISTAKES],
)
async def test_leader_statement_with_known_mistake_fails_its_test(
    election: Election, statement: str, right: str, wrong: str, check: Check
) -> None:
    with mutate_statement(statement, right, wrong):
        # The server refuses a statement that waits for a lock after its lock timeout.
        with pytest.raises((AssertionError, TimeoutError, LockNotAvailable)):
            await check(election)


@pytest.mark.parametrize(
    ("statement", "wrong", "lock"),
    [
        ("leader/probe", "held.objsubid = 2", f"pg_advisory_lock({BIGINT})"),
        ("leader/vacant_names", "held.objsubid = 2", f"pg_advisory_lock({BIGINT})"),
        (
            "leader/probe",
            "held.classid::bigint = %(namespace)s::bigint",
            f"pg_advisory_lock({advisory_locks.WORKER}, {SEAT})",
        ),
        (
            "leader/vacant_names",
            "held.classid::bigint = %(namespace)s::bigint",
            f"pg_advisory_lock({advisory_locks.WORKER}, {SEAT})",
        ),
    ],
)
async def test_leader_statement_with_partial_lock_match_is_detected(
    election: Election, statement: str, wrong: str, lock: str
) -> None:
    column, _, _ = wrong.partition(" = ")
    with mutate_statement(statement, wrong, f"{column} is not null"):
        assert True in await replace_session_lock(election, lock)
