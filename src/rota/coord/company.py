"""What coordinating needs in one event loop: the database, who we are, a keeper, and ears.

Nothing is started before it is needed: a lock that is held for a moment is two statements and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from rota.coord.alarms import Alarms
from rota.coord.calls import Calls
from rota.coord.campaigns import Campaigns
from rota.coord.counts import Counts
from rota.coord.identity import fresh
from rota.coord.keeper import Keeper
from rota.coord.lease import CLOSED, Lease
from rota.coord.renewals import Renewals
from rota.model.events import Event
from rota.model.rules import Rules
from rota.store import locks, waiters
from rota.store.database import Database
from rota.store.locks import Released
from rota.store.query import in_schema

log = logging.getLogger("rota")

T = TypeVar("T")

CLOSE_WITHIN = 2.0
"""Seconds in which what is still held may be given back."""

SEEN_THROUGH_WITHIN = 1.0
"""Seconds that who is cancelled waits for what he has begun; then it goes on by itself."""


class Ears(Protocol):
    """Who hears what is said on a channel."""

    def subscribe(self, channel: str, hear: Callable[[str], None], /) -> Callable[[], None]: ...

    def hears(self, channel: str, /) -> bool: ...


class Company:
    def __init__(
        self,
        database: Database,
        listen: Callable[[], Ears],
        announce: Callable[[Event], None],
    ) -> None:
        self.database = database
        self.listen = listen
        self.identity = fresh()
        self.counts = Counts()
        self._loop = asyncio.get_running_loop()
        self._announce = announce
        self._begun: set[asyncio.Task[Any]] = set()
        self._closed = False
        self.keeper = Keeper(database, "keeper")
        self.alarms = Alarms(
            *(self.identity, database.schema, self.announce, self.keeper.nudge),
            Rules.parse(database.settings.alerts),
        )
        self.renewals = Renewals(self.identity.instance, database.schema, self.alarms)
        self.calls = Calls(database.schema)
        self.keeper.add(self.renewals)
        self.keeper.add(self.calls)
        self.keeper.add(self.alarms)
        # Those who lead have a connection that no lock can cost them.
        self.throne = Keeper(database, "throne")
        self.campaigns = Campaigns(
            self.identity, database.schema, self.alarms, notify=database.settings.notify
        )
        self.throne.add(self.campaigns)

    @property
    def ended(self) -> bool:
        """Whether nothing can be done here any more."""
        return self._closed or self._loop.is_closed()

    def announce(self, event: Event) -> None:
        """From any thread."""
        self.counts.hear(event)
        self.tell(lambda: self._announce(event))

    def tell(self, what: Callable[[], None]) -> None:
        """Have something done in this loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            return  # the loop is gone, and so is whom it would concern

    async def see_through(self, doing: Coroutine[Any, Any, T]) -> T:
        """Await something that is done to its end, also if whoever awaits it is cancelled."""
        task = asyncio.create_task(doing)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task], timeout=SEEN_THROUGH_WITHIN)
            raise

    async def give_back(self, leases: Sequence[Lease], patience: float) -> list[Released | None]:
        """Let go of what is held, and wake whoever waits for it. None: it has passed to somebody else."""
        queries = [locks.release(each.name, each.slot, each.token) for each in leases]
        answers = await self.database.insist_on(queries, patience)
        released = [rows[0] if rows else None for rows in answers]
        wanted = [
            lease.name
            for lease, each in zip(leases, released, strict=True)
            if each is not None and each.wanted
        ]
        if wanted and self.database.settings.notify:
            channel = in_schema(locks.FREED, self.database.schema)
            try:
                await self.database.run(waiters.notify(channel, wanted))
            except Exception as error:
                log.debug("nobody was told that %s is free; they will look: %s", wanted, error)
        return released

    async def close(self) -> None:
        """What is still held is lost, and given back: who waits for it need not wait until it runs out."""
        self._closed = True
        await self.resign(CLOSED)
        await self.throne.close()
        held = sorted(self.renewals.lose_all(CLOSED), key=lambda lease: (lease.name, lease.slot))
        if self._begun:
            await asyncio.wait(self._begun, timeout=CLOSE_WITHIN)
        if held:
            try:
                async with asyncio.timeout(CLOSE_WITHIN):
                    await self.give_back(held, CLOSE_WITHIN)
            except Exception as error:
                log.warning("%s locks were not given back: %s", len(held), error)
        await self.keeper.close()

    async def resign(self, why: str, *, but_services: bool = False) -> None:
        """Lead nothing any more, and stand for nothing. `but_services`: they leave in their own time."""
        said = asyncio.Event()
        if self.campaigns.close(why, lambda: self.tell(said.set), but_services=but_services):
            self.throne.nudge()
            try:
                async with asyncio.timeout(CLOSE_WITHIN):
                    await said.wait()
            except TimeoutError:
                log.warning("who led has resigned, but could not say so")
