"""Elections, one step at a time: session locks and leases exclude each other; asserted terms block both."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from rota.store import advisory_locks, leaders
from rota.testing.server import DatabaseServer
from support.elections import (
    BIGINT,
    LEADER,
    LEASE,
    NAME,
    SEAT,
    Election,
    open_election,
    replace_session_lock,
)

# Session locks and leases


async def test_leader_session_lock_excludes_session_locks_and_leases(election: Election) -> None:
    first, second, pooled = [await election.voter() for _ in range(3)]
    term = await first.wins()

    assert not await second.sits()
    assert await pooled.loses(LEASE)
    assert not await pooled.sees_it_vacant()
    assert await first.stands(term)


async def test_leader_lease_excludes_session_locks_and_leases(election: Election) -> None:
    first, second, direct = [await election.voter() for _ in range(3)]
    term = await first.wins(LEASE)

    assert await second.loses(LEASE)
    assert not await second.sees_it_vacant()
    assert await direct.sits()
    assert await direct.loses()
    # A candidate that cannot be elected may hold the session lock for a moment; the leader keeps its term.
    assert await first.renews(term)


async def test_leader_session_lock_before_election_excludes_leases(election: Election) -> None:
    direct, pooled = await election.voter(), await election.voter()
    assert await direct.sits()
    assert await pooled.loses(LEASE)
    assert await direct.elect() is not None


async def test_leader_session_lock_is_refused_during_a_lease_grant(election: Election) -> None:
    direct, pooled, other = [await election.voter() for _ in range(3)]
    async with pooled.connection.transaction():
        await pooled.wins(LEASE)
        async with asyncio.timeout(60):
            assert not await direct.sits()
            assert await other.loses(LEASE)
    assert await direct.sits()
    assert await direct.loses()


async def test_leader_election_without_session_lock_is_refused(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    assert await first.loses()
    await first.wins()
    assert await second.loses()
    await first.resigns(1)
    # The first candidate still holds the session lock.
    assert await second.loses()


async def test_leader_expired_lease_passes_to_a_session_lock(election: Election) -> None:
    direct, pooled = await election.voter(), await election.voter()
    term = await pooled.wins(LEASE)
    await election.run_out()
    assert await pooled.sees_it_vacant()
    assert await direct.wins() > term
    assert await pooled.renews(term) is False


async def test_leader_ended_session_passes_to_a_lease(election: Election) -> None:
    direct, pooled = await election.voter(), await election.voter()
    term = await direct.wins()
    await election.sql("select pg_terminate_backend(%s)", direct.connection.info.backend_pid)
    async with asyncio.timeout(60):
        while not await pooled.sees_it_vacant():
            await asyncio.sleep(0.01)
    assert await pooled.wins(LEASE) == term + 1


async def test_leader_concurrent_first_leases_elect_one_candidate(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    async with first.connection.transaction():
        await first.wins(LEASE)
        async with asyncio.timeout(60):
            assert await second.loses(LEASE)
    assert await second.loses(LEASE)


async def test_leader_idle_session_is_ended_by_the_server(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    await first.wins()
    await first.ask(leaders.set_idle_timeout(0.5))
    async with asyncio.timeout(60):
        while not await second.sits():
            await asyncio.sleep(0.01)
    with pytest.raises(psycopg.OperationalError, match="idle-session timeout"):
        await first.stands(1)


# Terms


async def test_leader_terms_only_rise_for_any_winner_and_end(election: Election) -> None:
    terms = []
    for number in range(12):
        voter = await election.voter()
        lease = LEASE if number % 3 == 1 else None
        terms.append(await voter.wins(lease))
        if number % 3 == 2:
            session = voter.connection.info.backend_pid
            await voter.connection.close()
            while await election.sql("select 1 from pg_stat_activity where pid = %s", session):
                await asyncio.sleep(0.005)  # until the server has noticed
            continue
        if number % 2:
            await election.run_out()
        else:
            await voter.resigns(terms[-1])
        await voter.rises()
    assert terms == list(range(1, 13))


async def test_leader_resigned_term_is_kept_and_next_is_higher(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    term = await first.wins()
    await first.resigns(term)
    await first.rises()

    assert await election.row() == (term, None, None)
    assert await second.sees_it_vacant()
    assert await second.wins() == term + 1


async def test_leader_resign_of_an_old_term_changes_nothing(election: Election) -> None:
    voter = await election.voter()
    old = await voter.wins(LEASE)
    await election.run_out()
    new = await voter.wins(LEASE)
    await voter.resigns(old)
    assert (await election.row())[:2] == (new, voter.instance)


async def test_leader_expired_lease_is_not_renewed(election: Election) -> None:
    voter = await election.voter()
    term = await voter.wins(LEASE)
    assert await voter.renews(term)
    await election.run_out()
    before = await election.row()
    assert await voter.renews(term) is False
    assert await election.row() == before


async def test_leader_renew_accepts_only_own_current_lease(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    term = await first.wins()
    assert await first.renews(term) is False
    assert (await election.row())[2] is None
    await first.resigns(term)
    await first.rises()
    term = await second.wins(LEASE)
    assert await first.renews(term) is False
    assert await second.renews(term - 1) is False
    assert await second.renews(term) is True


async def test_leader_locked_row_does_not_block_renew_or_resign(election: Election) -> None:
    first, second = await election.voter(), await election.voter()
    term = await first.wins(LEASE)
    async with second.connection.transaction():
        await second.sql("select from rota.leaders for update")
        async with asyncio.timeout(60):
            assert await first.renews(term) is None
            await first.resigns(term)
    assert await first.renews(term) is True


async def test_leader_recent_elections_are_counted_and_bounded(election: Election) -> None:
    voter = await election.voter()
    assert await voter.sits()
    counts = []
    for number in range(15):
        if number == 5:
            await election.sql(
                "update rota.leaders set elections = array(select unnest(elections) - interval '1 hour')"
            )
        won = await voter.elect()
        assert won is not None
        counts.append(won.elections_last_minute)
    assert counts == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert await election.sql("select cardinality(elections) from rota.leaders") == [(10,)]


# Asserted terms


async def test_leader_asserted_term_blocks_elections(election: Election) -> None:
    leading, waiting, user = [await election.voter() for _ in range(3)]
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
async def test_leader_asserted_term_does_not_block_renew_or_resign(
    election: Election, lease: float | None
) -> None:
    leading, user = await election.voter(), await election.voter()
    term = await leading.wins(lease)
    async with user.connection.transaction():
        await user.ask(leaders.assert_term(NAME, term))
        async with asyncio.timeout(60):
            assert await (leading.stands(term) if lease is None else leading.renews(term))
            await leading.resigns(term)
            await leading.rises()
            assert await leading.loses(LEASE)
    assert await leading.wins(lease) == term + 1


BLOCKED_SESSIONS = """
select from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0
"""


async def test_assert_term_during_election_waits_and_is_refused(election: Election) -> None:
    old, new, user = [await election.voter() for _ in range(3)]
    term = await old.wins(LEASE)
    async with new.connection.transaction():
        await new.ask(leaders.resign(old.instance, NAME, term))
        await new.wins(LEASE)
        asserting = asyncio.create_task(user.ask(leaders.assert_term(NAME, term)))
        async with asyncio.timeout(60):
            while not await election.sql(BLOCKED_SESSIONS):
                await asyncio.sleep(0.005)
    with pytest.raises(psycopg.Error, match="term 1 of leader 'housekeeping' is over") as refused:
        await asserting
    assert refused.value.sqlstate == "RT005"
    await user.ask(leaders.assert_term(NAME, term + 1))


async def test_assert_term_that_is_over_is_refused(election: Election) -> None:
    voter = await election.voter()

    async def holds(term: int) -> bool:
        try:
            await voter.ask(leaders.assert_term(NAME, term))
        except psycopg.Error as error:
            return error.sqlstate != "RT005"
        return True

    assert not await holds(1)
    term = await voter.wins(LEASE)
    assert [await holds(each) for each in (term - 1, term, term + 1)] == [False, True, False]
    await election.run_out()
    assert not await holds(term)
    term = await voter.wins()
    assert await holds(term)
    await voter.resigns(term)
    assert not await holds(term)


# Checks of the session lock


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
async def test_leader_probe_ignores_similar_advisory_locks(election: Election, lock: str) -> None:
    assert await replace_session_lock(election, lock) == (False, False)


async def test_leader_probe_ignores_lock_in_another_database(
    election: Election, rota_server: DatabaseServer
) -> None:
    voter = await election.voter()
    term = await voter.wins()
    await voter.rises()
    with rota_server.database() as elsewhere:
        async with open_election(elsewhere) as others:
            assert await (await others.voter()).wins() == 1
            assert not await voter.stands(term)
            assert await voter.sees_it_vacant()


async def test_leader_probe_ignores_session_lock_of_another_candidate(election: Election) -> None:
    voter, other = await election.voter(), await election.voter()
    term = await voter.wins()
    await voter.rises()
    assert await other.sits()
    assert not await voter.stands(term)
    # The other candidate is not elected yet, but its session lock already counts.
    assert not await voter.sees_it_vacant()


async def test_leader_probe_with_session_lock_but_wrong_term_fails(election: Election) -> None:
    """The term must match, too: an operator may have changed the row by hand."""
    voter = await election.voter()
    term = await voter.wins()
    assert await voter.stands(term)
    assert not await voter.stands(term - 1)
    await election.sql("update rota.leaders set term = term + 1")
    assert not await voter.stands(term)
    await election.sql("update rota.leaders set term = term - 1, instance = gen_random_uuid()")
    assert not await voter.stands(term)


async def test_leader_negative_session_lock_key_works(election: Election) -> None:
    names = [f"name {number}" for number in range(8)]
    voters = [await election.voter(name) for name in names]
    assert {voter.seat < 0 for voter in voters} == {True, False}
    for voter in voters:
        other = await election.voter(voter.name)
        term = await voter.wins()
        assert await voter.stands(term)
        assert not await other.sees_it_vacant()
        assert not await other.sits()
        assert await other.loses(LEASE)


async def test_leader_session_lock_key_depends_on_the_schema() -> None:
    assert leaders.session_lock_key("a", "rota") != leaders.session_lock_key("a", "other")
