"""How a worker leaves without losing work. Shutting down is a list, in order:

     1  take nothing more: here, and in the registry, so that claiming refuses too
     2  give back what has not begun, and what only waits for others
     3  let what runs come to its end; its code can see that it had better (`ctx.draining`)
     4  shortly before the grace is over, stop the rest; what does not stop is given back all the same
     5  record what ended
     6  in a process that serves requests, too: stay until the last of them has been answered
     7  stop the loops
     8  sign off
     9  stop the heart: until here nobody takes us for dead

A second signal skips to 4. Nothing is waited for beyond the grace, least of all a database that is away.
"""

from __future__ import annotations

import asyncio
import logging
import time

from rota.engine.announce import Announcer
from rota.engine.life import Life, soon
from rota.model import events

log = logging.getLogger("rota")

LONGEST_MARGIN = 3.0
SHORTEST_MARGIN = 1.0


class Drain:
    def __init__(
        self,
        life: Life,
        grace: float,
        announcer: Announcer,
        stay: asyncio.Event | None = None,
    ) -> None:
        self._life = life
        self._stay = stay
        self._announcer = announcer
        self._began = time.monotonic()
        # What stopping and recording may take.
        self._margin = max(min(LONGEST_MARGIN, grace / 4), SHORTEST_MARGIN)
        self._until = self._began + grace
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        if not self._hurried.is_set():
            self._say("hurrying: what runs is stopped and goes back")
            self._until = min(self._until, time.monotonic() + self._margin)
            self._hurried.set()

    async def run(self) -> None:
        for step in (
            self._take_nothing_more,
            self._give_back_what_has_not_begun,
            self._let_the_rest_end,
            self._stop_the_rest,
            self._record,
            self._stay_with_the_rest,
            self._stop_the_loops,
            self._sign_off,
            self._stop_the_heart,
        ):
            await step()

    async def _take_nothing_more(self) -> None:
        life = self._life
        life.take_nothing_more()
        grace, running = self._until - self._began, life.desk.running
        self._say(
            f"draining: {running} running, up to {grace:g} s for them" if running else "draining"
        )
        self._announcer.announce(events.WorkerDraining(life.id))
        try:
            await soon(life.retire(), min(self._margin, 1.0))
        except Exception as error:
            log.warning("worker %s could not say that it drains: %s", life.id, error)

    async def _give_back_what_has_not_begun(self) -> None:
        given = self._life.desk.put_away(older_than=0)
        if given:
            self._say(f"gave back {given} that had not begun")
        self._life.desk.stop_parked()
        self._life.exchange.wake()

    async def _let_the_rest_end(self) -> None:
        desk, ran = self._life.desk, self._life.desk.running
        empty = asyncio.create_task(desk.until_empty())
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait(
                [empty, hurried],
                timeout=max(self._left() - self._margin, 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            empty.cancel()
            hurried.cancel()
        if ran and not desk.running:
            self._say("all jobs have ended")

    async def _stop_the_rest(self) -> None:
        desk = self._life.desk
        if not desk.running:
            return
        self._say(f"stopping {desk.running} that still run")
        desk.stop_all()
        if not await soon(desk.until_empty(), max(self._left(), self._margin) / 2):
            self._say(f"giving back {desk.running} that would not stop")
            desk.abandon()

    async def _record(self) -> None:
        self._life.exchange.wake()
        if not await soon(self._life.until_recorded(), max(self._left(), SHORTEST_MARGIN / 2)):
            self._say(
                "the database did not take every outcome in time: those jobs run again elsewhere"
            )

    async def _stay_with_the_rest(self) -> None:
        if self._stay is not None:
            served = asyncio.create_task(self._stay.wait())
            hurried = asyncio.create_task(self._hurried.wait())
            try:
                await asyncio.wait(
                    [served, hurried],
                    timeout=max(self._left(), 0),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                served.cancel()
                hurried.cancel()

    async def _stop_the_loops(self) -> None:
        await self._life.stop(within=SHORTEST_MARGIN / 2)

    async def _sign_off(self) -> None:
        await self._life.leave()

    async def _stop_the_heart(self) -> None:
        await self._life.end_heart()
        self._say("left")

    def _left(self) -> float:
        return self._until - time.monotonic()

    def _say(self, what: str) -> None:
        log.info("worker %s, %.1f s: %s", self._life.id, time.monotonic() - self._began, what)
