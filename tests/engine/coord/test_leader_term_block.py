"""`async with leader.term()`: a block that begins when elected and is cancelled when the term is lost."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from rota import Rota
from rota.coord import elector
from rota.errors import LeadershipLost
from support.leader_helpers import elected, run_sql, until, wait_until_unlocked
from support.owned_clock import ClockedRota

NAME = "housekeeping"


async def end_term_in_database(dsn: str) -> None:
    """End the term in the database; the leader notices at its next poll."""
    await run_sql(dsn, "update rota.leaders set term = term + 1, instance = null, expires = null")


async def test_term_block_lost_term_cancels_the_block(rota_app: Rota, direct_dsn: str) -> None:
    reached: list[str] = []

    async def lead() -> None:
        async with rota_app.leader(NAME, lease=1).term() as term:
            reached.append("inside")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                reached.append(f"cancelled, held: {term.held}, {term.lost_reason}")
                raise

    leading = asyncio.create_task(lead())
    await until(lambda: reached)
    await end_term_in_database(direct_dsn)
    with pytest.raises(
        LeadershipLost, match="term 1 of leader 'housekeeping' was lost: the database reports"
    ):
        await asyncio.wait_for(leading, 60)
    assert reached == ["inside", "cancelled, held: False, the database reports that it has ended"]
    await wait_until_unlocked(direct_dsn)


async def test_term_block_without_await_raises_leadership_lost_at_end(
    rota_app: Rota, direct_dsn: str
) -> None:
    async def lead() -> None:
        async with rota_app.leader(NAME, lease=1).term() as term:
            await end_term_in_database(direct_dsn)
            while term.held:
                time.sleep(0.01)  # noqa: ASYNC251 - blocks on purpose
            assert (
                not term.lost.is_set()
            )  # the event loop was blocked and has not run the callback yet

    with pytest.raises(LeadershipLost, match="was lost"):
        await lead()


async def test_term_block_swallowed_cancellation_raises_leadership_lost(
    rota_app: Rota, direct_dsn: str
) -> None:
    async def lead() -> None:
        async with rota_app.leader(NAME, lease=1).term():
            await end_term_in_database(direct_dsn)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(0)

    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(LeadershipLost, match="was lost"):
        await lead()
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_term_block_own_error_is_raised(rota_app: Rota, direct_dsn: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with rota_app.leader(NAME).term():
            raise ZeroDivisionError

    async def lose_and_fail() -> None:
        async with rota_app.leader(NAME, lease=1).term():
            await end_term_in_database(direct_dsn)
            try:
                await asyncio.sleep(60)
            finally:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await lose_and_fail()
    await wait_until_unlocked(direct_dsn)


async def test_term_block_cancelled_from_outside_is_cancelled_and_resigns(
    rota_app: Rota, direct_dsn: str
) -> None:
    inside = asyncio.Event()

    async def lead() -> None:
        async with rota_app.leader(NAME).term():
            inside.set()
            await asyncio.sleep(60)

    leading = asyncio.create_task(lead())
    await asyncio.wait_for(inside.wait(), 60)
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    assert await run_sql(direct_dsn, "select instance from rota.leaders") == [(None,)]
    await wait_until_unlocked(direct_dsn)


async def test_term_block_cancelled_repeatedly_stops_leading(
    rota_app: Rota, direct_dsn: str
) -> None:
    """Resigning takes a round trip; a second cancellation does not wait for it."""
    inside = asyncio.Event()
    leader = rota_app.leader(NAME)

    async def lead() -> None:
        async with leader.term():
            inside.set()
            await asyncio.sleep(60)

    leading = asyncio.create_task(lead())
    await asyncio.wait_for(inside.wait(), 60)
    while not leading.done():
        leading.cancel()
        await asyncio.sleep(0)
        assert not leader.is_leader() or not leading.cancelling() > 1
    assert not leader.is_leader()
    async with Rota(direct_dsn) as other, other.leader(NAME) as second:
        await elected(second, within=60)


async def test_term_block_surrounding_timeout_raises_timeout_error(
    rota_app: Rota, direct_dsn: str
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), rota_app.leader(NAME).term():
            await asyncio.sleep(60)

    async def lose_and_wait_for_too_long() -> None:
        async with asyncio.timeout(None) as limit:
            async with rota_app.leader(NAME, lease=1).term() as term:
                await end_term_in_database(direct_dsn)
                try:
                    await asyncio.sleep(60)
                finally:
                    assert term.lost.is_set()
                    limit.reschedule(asyncio.get_running_loop().time())
                    await asyncio.sleep(0.1)

    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(TimeoutError):
        await lose_and_wait_for_too_long()
    assert task.cancelling() == 0


async def test_term_block_timeout_before_election_withdraws_the_candidate(
    clocked_app: ClockedRota, direct_dsn: str
) -> None:
    async with Rota(direct_dsn) as other, other.leader(NAME).term():
        leader = clocked_app.leader(NAME)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), leader.term():
                pytest.fail("somebody else leads")
    clocked_app.lease_clock.advance(60)
    async with clocked_app.leader("another") as later:
        await elected(later)
    assert not leader.is_leader()
    assert await run_sql(
        direct_dsn, f"select term, instance from rota.leaders where name = '{NAME}'"
    ) == [(1, None)]


async def test_term_block_inside_candidacy_resigns_at_its_end(
    rota_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elector, "ABSTAIN_SECONDS", 0.3)
    async with rota_app.leader(NAME) as leader:
        async with leader.term() as first:
            pass
        assert not first.held
        assert not leader.is_leader()
        with pytest.raises(ZeroDivisionError):
            async with leader.term() as second:
                raise ZeroDivisionError
        assert not second.held
        async with leader.term() as third:
            assert [first.number, second.number, third.number] == [1, 2, 3]


async def test_term_blocks_sharing_a_term_end_independently(rota_app: Rota) -> None:
    leader = rota_app.leader(NAME)
    go_on = asyncio.Event()

    async def lead(wait: bool) -> int:
        async with leader.term() as term:
            if wait:
                await go_on.wait()
            assert term.held
            return term.number

    late = asyncio.create_task(lead(True))
    assert await asyncio.wait_for(lead(False), 60) == 1
    for _ in range(100):
        await asyncio.sleep(0)
    assert leader.is_leader()
    go_on.set()
    assert await late == 1
    assert not leader.is_leader()


async def test_leader_reentered_during_resignation_is_elected_again(
    rota_app: Rota, direct_dsn: str
) -> None:
    said: list[str] = []
    leader = rota_app.leader(NAME)
    leader.on_elected(lambda term: said.append(f"elected {term.number}"))
    leader.on_lost(lambda term: said.append(f"lost {term.number}"))
    await leader.__aenter__()
    await elected(leader)
    leaving = asyncio.create_task(leader.__aexit__(None, None, None))
    await asyncio.sleep(0)
    assert not leader.is_leader()
    async with leader:
        assert (await elected(leader)).number == 2
        await leaving
        assert leader.is_leader()
        await until(lambda: len(said) == 3)
    assert said == ["elected 1", "lost 1", "elected 2", "lost 2"]
    await wait_until_unlocked(direct_dsn)


async def test_term_block_resigned_inside_raises_leadership_lost(rota_app: Rota) -> None:
    leader = rota_app.leader(NAME)

    async def lead() -> None:
        async with leader.term():
            await leader.resign()
            await asyncio.sleep(60)

    with pytest.raises(LeadershipLost, match="it was resigned"):
        await lead()


async def test_term_block_of_closed_app_raises_leadership_lost(rota_dsn: str) -> None:
    app = Rota(rota_dsn)
    inside = asyncio.Event()

    async def lead() -> None:
        async with app.leader(NAME).term():
            inside.set()
            await asyncio.sleep(60)

    leading = asyncio.create_task(lead())
    await asyncio.wait_for(inside.wait(), 60)
    await app.close()
    with pytest.raises(LeadershipLost, match="the app was closed while it was held"):
        await asyncio.wait_for(leading, 60)


async def test_term_block_without_database_waits_for_election() -> None:
    """The candidate is elected when the database is back."""
    async with Rota("postgresql://nobody@127.0.0.1:1/none") as app:
        leader = app.leader(NAME)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), leader.term():
                pytest.fail("nobody has elected it")
        assert not leader.is_leader()
