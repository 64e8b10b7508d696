"""A look at the database: can it be reached, and is its schema one we can work on?"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from rota.app.readiness import Reason
from rota.engine.life import soon
from rota.errors import SchemaMissing, SchemaTooNew, SchemaTooOld
from rota.store.migrate import check_on

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.store.session import Session

log = logging.getLogger("rota")

LOOK_EVERY = 1.0
ANSWER_WITHIN = 1.0


class Look:
    """The latest look at the database, shared by all who ask in one event loop."""

    def __init__(self, open: Callable[[], Awaitable[Client]]) -> None:
        self._open = open
        self._session: Session | None = None
        self._doing: asyncio.Task[Reason | None] | None = None
        self._began = 0.0
        self._failing_since: float | None = None
        self._unanswered = 0
        self._lives = 0
        """So many times it was closed: what was under way then is not kept."""

    async def latest(self) -> Reason | None:
        now = time.monotonic()
        if self._doing is None or (self._doing.done() and now - self._began >= LOOK_EVERY):
            self._began = now
            self._doing = asyncio.create_task(self._look(), name="rota readiness")
        # Shielded: who asked may hang up, the others still want to know.
        return await asyncio.shield(self._doing)

    async def _look(self) -> Reason | None:
        began = time.monotonic()
        try:
            if not await soon(self._ask(), ANSWER_WITHIN):
                self._unanswered += 1
                if self._unanswered < 2:
                    return None
                return self._unreachable(began, f"no answer in {ANSWER_WITHIN:g} s")
        except (SchemaMissing, SchemaTooOld) as error:
            self._failing_since, self._unanswered = None, 0
            return Reason("schema", str(error))
        except SchemaTooNew:
            pass  # it was not when we started: a deploy has begun, and we are what serves until it is over
        except Exception as error:
            return self._unreachable(began, _said(error))
        self._failing_since, self._unanswered = None, 0
        return None

    async def _ask(self) -> None:
        client = await self._open()
        lives = self._lives
        # Taken away while it is used: a look that was given up ends later, and with its own.
        session, self._session = self._session, None
        try:
            if session is None or session.closed:
                session = await client.database.connect()
                session.deadline = ANSWER_WITHIN
            await check_on(session, client.database.schema)
        except BaseException:
            if session is not None:
                await session.close()
            raise
        await self._keep(session, lives)

    async def _keep(self, session: Session, lives: int) -> None:
        if self._session is None and lives == self._lives:
            self._session = session
        else:
            await session.close()

    def _unreachable(self, began: float, why: str) -> Reason:
        if self._failing_since is None:
            self._failing_since = began - (self._unanswered > 1) * LOOK_EVERY
        away = time.monotonic() - self._failing_since
        return Reason("database", f"the database has been unreachable for {away:.0f} s: {why}")

    async def close(self) -> None:
        self._lives += 1
        session, self._session = self._session, None
        if session is not None and not session.closed:
            await session.close()


def _said(error: Exception) -> str:
    """Anybody may ask whether we are ready: of where the database is and by which name we call there, that
    tells nothing. The log does."""
    log.debug("a look at the database failed: %s", error)
    return "it cannot be connected to, or refuses us; the log of a worker says more"
