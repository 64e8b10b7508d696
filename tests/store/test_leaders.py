"""Elections, one step at a time: session locks and leases exclude each other; asserted terms block both."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from rota.store import advisory_locks, leaders
from rota.testing.server import DatabaseServer

from .polls import LEASE, NAME, Polls, polls_at

LEADER = advisory_locks.LEADER


# Session locks and leases


async def test_a_seat_keeps_seats_and_leases_away(polls: Polls) -> None:
    first, second, pooled = [await polls.voter() for _ in range(3)]
    term = await first.wins()

    assert not await second.sits()
    assert await pooled.loses(LEASE)
    assert not await pooled.sees_it_vacant()
    assert await first.stands(term)


async def test_a_lease_keeps_seats_and_leases_away(polls: Polls) -> None:
    first, second, direct = [await polls.voter() for _ in range(3)]
    term = await first.wins(LEASE)

    assert await second.loses(LEASE)
    assert not await second.sees_it_vacant()
    assert await direct.sits()
    assert await direct.loses()
    # A candidate that cannot be elected may hold the session lock for a moment; the leader keeps its term.
    assert await first.renews(term)


async def test_who_has_sat_down_and_is_not_elected_yet_keeps_leases_away(polls: Polls) -> None:
    direct, pooled = await polls.voter(), await polls.voter()
    assert await direct.sits()
    assert await pooled.loses(LEASE)
    assert await direct.elect() is not None


async def test_nobody_sits_down_while_a_lease_is_being_given(polls: Polls) -> None:
    direct, pooled, other = [await polls.voter() for _ in range(3)]
    async with pooled.connection.transaction():
        await pooled.wins(LEASE)
        async with asyncio.timeout(60):
            assert not await direct.sits()
            assert await other.loses(LEASE)
    assert await direct.sits()
    assert await direct.loses()


async def test_without_a_seat_nobody_is_elected_to_one(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    assert await first.loses()
    await first.wins()
    assert await second.loses()
    await first.resigns(1)
    # The first candidate still holds the session lock.
    assert await second.loses()


async def test_what_a_lease_was_passes_to_a_seat_when_it_has_run_out(polls: Polls) -> None:
    direct, pooled = await polls.voter(), await polls.voter()
    term = await pooled.wins(LEASE)
    await polls.run_out()
    assert await pooled.sees_it_vacant()
    assert await direct.wins() > term
    assert await pooled.renews(term) is False


async def test_what_a_seat_was_passes_to_a_lease_when_its_session_has_ended(polls: Polls) -> None:
    direct, pooled = await polls.voter(), await polls.voter()
    term = await direct.wins()
    await polls.sql("select pg_terminate_backend(%s)", direct.connection.info.backend_pid)
    async with asyncio.timeout(60):
        while not await pooled.sees_it_vacant():
            await asyncio.sleep(0.01)
    assert await pooled.wins(LEASE) == term + 1


async def test_of_two_who_ask_for_the_first_lease_at_once_one_gets_it(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    async with first.connection.transaction():
        await first.wins(LEASE)
        async with asyncio.timeout(60):
            assert await second.loses(LEASE)
    assert await second.loses(LEASE)


async def test_the_server_ends_a_session_that_has_been_silent(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    await first.ask(leaders.set_idle_timeout(0.2))
    await first.wins()
    for _ in range(4):  # an active session is not ended
        await asyncio.sleep(0.1)
        assert await first.stands(1)
    async with asyncio.timeout(60):
        while not await second.sits():
            await asyncio.sleep(0.01)
    with pytest.raises(psycopg.OperationalError, match="idle-session timeout"):
        await first.stands(1)


# Terms


async def test_terms_only_rise_whoever_wins_them_and_however_they_end(polls: Polls) -> None:
    terms = []
    for number in range(12):
        voter = await polls.voter()
        lease = LEASE if number % 3 == 1 else None
        terms.append(await voter.wins(lease))
        if number % 3 == 2:
            await voter.connection.close()
            await asyncio.sleep(0.05)  # until the server has noticed
            continue
        if number % 2:
            await polls.run_out()
        else:
            await voter.resigns(terms[-1])
        await voter.rises()
    assert terms == list(range(1, 13))


async def test_a_resigned_term_stays_the_last_one(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    term = await first.wins()
    await first.resigns(term)
    await first.rises()

    assert await polls.row() == (term, None, None)
    assert await second.sees_it_vacant()
    assert await second.wins() == term + 1


async def test_who_resigns_names_the_term(polls: Polls) -> None:
    voter = await polls.voter()
    old = await voter.wins(LEASE)
    await polls.run_out()
    new = await voter.wins(LEASE)
    await voter.resigns(old)
    assert (await polls.row())[:2] == (new, voter.instance)


async def test_a_lease_that_has_run_out_is_not_revived(polls: Polls) -> None:
    voter = await polls.voter()
    term = await voter.wins(LEASE)
    assert await voter.renews(term)
    await polls.run_out()
    before = await polls.row()
    assert await voter.renews(term) is False
    assert await polls.row() == before


async def test_nothing_but_a_lease_of_ones_own_is_renewed(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    term = await first.wins()
    assert await first.renews(term) is False
    assert (await polls.row())[2] is None
    await first.resigns(term)
    await first.rises()
    term = await second.wins(LEASE)
    assert await first.renews(term) is False
    assert await second.renews(term - 1) is False
    assert await second.renews(term) is True


async def test_a_row_that_somebody_keeps_locked_stops_nobody(polls: Polls) -> None:
    first, second = await polls.voter(), await polls.voter()
    term = await first.wins(LEASE)
    async with second.connection.transaction():
        await second.sql("select from rota.leaders for update")
        async with asyncio.timeout(60):
            assert await first.renews(term) is None
            await first.resigns(term)
    assert await first.renews(term) is True


async def test_elections_are_remembered_but_not_for_ever(polls: Polls) -> None:
    voter = await polls.voter()
    assert await voter.sits()
    counts = []
    for number in range(15):
        if number == 5:
            await polls.sql(
                "update rota.leaders set elections = array(select unnest(elections) - interval '1 hour')"
            )
        won = await voter.elect()
        assert won is not None
        counts.append(won.elections_last_minute)
    assert counts == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert await polls.sql("select cardinality(elections) from rota.leaders") == [(10,)]


# Asserted terms


async def test_a_term_that_a_transaction_relies_on_keeps_elections_away(polls: Polls) -> None:
    leading, waiting, user = [await polls.voter() for _ in range(3)]
    term = await leading.wins()
    async with user.connection.transaction():
        await user.ask(leaders.assert_term(NAME, term))
        await leading.connection.close()
        async with asyncio.timeout(60):
            while not await waiting.sits():
                await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            assert await waiting.loses()
        await waiting.rises()
        assert await waiting.loses(LEASE)
        # A second assertion in the same transaction still holds.
        await user.ask(leaders.assert_term(NAME, term))
    assert await waiting.wins() == term + 1


@pytest.mark.parametrize("lease", [None, LEASE])
async def test_who_leads_is_not_stopped_by_what_relies_on_it(
    polls: Polls, lease: float | None
) -> None:
    leading, user = await polls.voter(), await polls.voter()
    term = await leading.wins(lease)
    async with user.connection.transaction():
        await user.ask(leaders.assert_term(NAME, term))
        async with asyncio.timeout(60):
            assert await (leading.stands(term) if lease is None else leading.renews(term))
            await leading.resigns(term)
            await leading.rises()
            assert await leading.loses(LEASE)
    assert await leading.wins(lease) == term + 1


async def test_an_assertion_waits_for_an_election_and_is_refused(polls: Polls) -> None:
    old, new, user = [await polls.voter() for _ in range(3)]
    term = await old.wins(LEASE)
    await polls.run_out()
    async with new.connection.transaction():
        await new.wins(LEASE)
        asserting = asyncio.create_task(user.ask(leaders.assert_term(NAME, term)))
        await asyncio.sleep(0.1)
    with pytest.raises(psycopg.Error, match="term 1 of leader 'housekeeping' is over") as refused:
        await asserting
    assert refused.value.sqlstate == "RT005"
    await user.ask(leaders.assert_term(NAME, term + 1))


async def test_an_assertion_is_refused_when_the_term_is_over(polls: Polls) -> None:
    voter = await polls.voter()

    async def holds(term: int) -> bool:
        try:
            await voter.ask(leaders.assert_term(NAME, term))
        except psycopg.Error as error:
            return error.sqlstate != "RT005"
        return True

    assert not await holds(1)
    term = await voter.wins(LEASE)
    assert [await holds(each) for each in (term - 1, term, term + 1)] == [False, True, False]
    await polls.run_out()
    assert not await holds(term)
    term = await voter.wins()
    assert await holds(term)
    await voter.resigns(term)
    assert not await holds(term)


# Checks of the session lock


async def put_in_its_place(polls: Polls, lock: str) -> tuple[bool | None, bool]:
    """Replace the session lock of an elected candidate by another lock.

    Return if the candidate's own probe, and another candidate's check, take it for the session lock.
    """
    voter, other = await polls.voter(), await polls.voter()
    term = await voter.wins()
    assert await voter.stands(term)
    assert not await other.sees_it_vacant()
    await voter.rises()
    await voter.sql(f"select {lock}")
    return await voter.stands(term), not await other.sees_it_vacant()


BIGINT = (
    f"({LEADER}::bigint << 32) | ({leaders.session_lock_key(NAME, 'rota')}::bigint & 4294967295)"
)
SEAT = leaders.session_lock_key(NAME, "rota")


@pytest.mark.parametrize(
    "lock",
    [
        "1",
        f"pg_advisory_lock({BIGINT})",
        f"pg_advisory_lock({SEAT}::bigint & 4294967295)",
        f"pg_advisory_lock({advisory_locks.WORKER}, {SEAT})",
        f"pg_advisory_lock({LEADER}, {SEAT ^ 1})",
        f"pg_advisory_lock(0, {SEAT})",
    ],
)
async def test_a_lock_that_only_looks_like_the_seat_is_not_it(polls: Polls, lock: str) -> None:
    assert await put_in_its_place(polls, lock) == (False, False)


async def test_a_lock_in_another_database_is_not_the_seat(
    polls: Polls, rota_server: DatabaseServer
) -> None:
    voter = await polls.voter()
    term = await voter.wins()
    await voter.rises()
    with rota_server.database() as elsewhere:
        async with polls_at(elsewhere) as others:
            assert await (await others.voter()).wins() == 1
            assert not await voter.stands(term)
            assert await voter.sees_it_vacant()


async def test_somebody_elses_seat_is_not_ours(polls: Polls) -> None:
    voter, other = await polls.voter(), await polls.voter()
    term = await voter.wins()
    await voter.rises()
    assert await other.sits()
    assert not await voter.stands(term)
    # The other candidate is not elected yet, but its session lock already counts.
    assert not await voter.sees_it_vacant()


async def test_the_seat_is_not_enough(polls: Polls) -> None:
    """The term must match, too: an operator may have changed the row by hand."""
    voter = await polls.voter()
    term = await voter.wins()
    assert await voter.stands(term)
    assert not await voter.stands(term - 1)
    await polls.sql("update rota.leaders set term = term + 1")
    assert not await voter.stands(term)
    await polls.sql("update rota.leaders set term = term - 1, instance = gen_random_uuid()")
    assert not await voter.stands(term)


async def test_half_of_all_seats_are_below_zero(polls: Polls) -> None:
    names = [f"name {number}" for number in range(8)]
    voters = [await polls.voter(name) for name in names]
    assert {voter.seat < 0 for voter in voters} == {True, False}
    for voter in voters:
        other = await polls.voter(voter.name)
        term = await voter.wins()
        assert await voter.stands(term)
        assert not await other.sees_it_vacant()
        assert not await other.sits()
        assert await other.loses(LEASE)


async def test_another_schema_has_other_seats() -> None:
    assert leaders.session_lock_key("a", "rota") != leaders.session_lock_key("a", "other")
