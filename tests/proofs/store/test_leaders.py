"""An active leader's session is not ended by the server's idle timeout. The statements come in time."""

from __future__ import annotations

import asyncio

from rota.store import leaders
from support.elections import Election


async def test_leader_active_session_is_not_ended_by_the_server(election: Election) -> None:
    first = await election.voter()
    await first.ask(leaders.set_idle_timeout(2.0))
    await first.wins()
    for _ in range(4):
        await asyncio.sleep(0.6)
        assert await first.stands(1)
