"""Known mistakes in the statements of an election: the test of each statement must detect them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable

from rota.store import advisory_locks

from . import test_leaders
from .polls import Polls, mistake
from .test_leaders import BIGINT, SEAT, put_in_its_place

Check = Callable[[Polls], Awaitable[Any]]

MISTAKES: list[tuple[str, str, str, Check]] = [
    (
        "leader/elect",
        "and (select session_lock.acquired from session_lock)\n       and (leaders",
        "and (leaders",
        test_leaders.test_without_a_seat_nobody_is_elected_to_one,
    ),
    (
        "leader/elect",
        "then pg_try_advisory_xact_lock(%(namespace)s::int, %(session_lock)s::int)",
        "then true",
        test_leaders.test_a_seat_keeps_seats_and_leases_away,
    ),
    (
        "leader/elect",
        "or leaders.expires <= rota.clock())",
        "or leaders.expires is not null)",
        test_leaders.test_a_lease_keeps_seats_and_leases_away,
    ),
    (
        "leader/elect",
        "for update skip locked",
        "",
        test_leaders.test_a_term_that_a_transaction_relies_on_keeps_elections_away,
    ),
    (
        "leader/elect",
        "term = leaders.term + 1",
        "term = leaders.term",
        test_leaders.test_terms_only_rise_whoever_wins_them_and_however_they_end,
    ),
    (
        "leader/elect",
        "[greatest(cardinality(leaders.elections) - 8, 1):]",
        "",
        test_leaders.test_elections_are_remembered_but_not_for_ever,
    ),
    (
        "leader/renew",
        "       and leaders.expires > rota.clock()\n",
        "",
        test_leaders.test_a_lease_that_has_run_out_is_not_revived,
    ),
    (
        "leader/renew",
        "skip locked",
        "",
        test_leaders.test_a_row_that_somebody_keeps_locked_stops_nobody,
    ),
    ("leader/probe", "and leaders.term = given.term", "", test_leaders.test_the_seat_is_not_enough),
    (
        "leader/probe",
        "and held.pid = pg_backend_pid()",
        "",
        test_leaders.test_somebody_elses_seat_is_not_ours,
    ),
    (
        "leader/resign",
        "and leaders.term = %(term)s::bigint",
        "",
        test_leaders.test_who_resigns_names_the_term,
    ),
    (
        "leader/unlock_session",
        "pg_advisory_unlock(%(namespace)s::int, session_lock)",
        "session_lock",
        test_leaders.test_a_resigned_term_stays_the_last_one,
    ),
]


@pytest.mark.parametrize(
    ("statement", "right", "wrong", "check"),
    MISTAKES,
    ids=[f"{statement}: {right.strip()[:40]}" for statement, right, _, _ in MISTAKES],
)
async def test_a_known_mistake_is_found(
    polls: Polls, statement: str, right: str, wrong: str, check: Check
) -> None:
    with mistake(statement, right, wrong):
        # The server refuses a statement that waits for a lock after its lock timeout.
        with pytest.raises((AssertionError, TimeoutError, LockNotAvailable)):
            await check(polls)


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
async def test_half_a_look_at_the_seat_is_found(
    polls: Polls, statement: str, wrong: str, lock: str
) -> None:
    column, _, _ = wrong.partition(" = ")
    with mistake(statement, wrong, f"{column} is not null"):
        assert True in await put_in_its_place(polls, lock)
