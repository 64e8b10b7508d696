"""All the services of an app on one instance: it stands by for each, and runs those it is elected for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rota.coord.company import Company
from rota.coord.post import Post
from rota.coord.roster import Roster
from rota.model import events
from rota.model.service import ServiceDefinition
from rota.store.plain import Plain

log = logging.getLogger("rota")

LEAVE_WITHIN = 1.0
"""Seconds in which the others may be told that this instance is there no more; else they find out."""


class Services:
    def __init__(
        self, company: Company, plain: Plain, definitions: Sequence[ServiceDefinition]
    ) -> None:
        self._company = company
        self._roster = Roster(
            company.identity,
            company.database.schema,
            company.database.settings.version,
            [each.name for each in definitions],
            self.running,
            lambda: [name for name, post in self._posts.items() if post.stays],
            lambda name: company.tell(self._posts[name].pass_on),
        )
        self._posts = {
            each.name: Post(company, plain, each, self._roster.reluctance, self._changed)
            for each in definitions
        }
        self._started = False
        self._stopping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._started = True
        names = sorted(self._posts)
        log.info("stands by for services %s", ", ".join(names))
        self._company.throne.add(self._roster)
        self._company.throne.nudge()
        for post in self._posts.values():
            post.start()
        self._company.announce(events.ServicesStarted(tuple(names)))

    def running(self) -> list[str]:
        """Those that run here."""
        return [name for name, post in self._posts.items() if post.runs]

    def begin_to_stop(self, grace: float) -> asyncio.Task[None]:
        """Pass everything on; what is under way has so many seconds to end."""
        if self._stopping is None:
            for post in self._posts.values():
                post.begin_to_stop()
            self._stopping = asyncio.create_task(self._stop(grace), name="rota services stop")
        return self._stopping

    async def stop(self, grace: float) -> None:
        await asyncio.shield(self.begin_to_stop(grace))

    def hurry(self) -> None:
        """Do not wait for what is under way, now or when they stop."""
        for post in self._posts.values():
            post.hurry()

    async def _stop(self, grace: float) -> None:
        if not self._started:
            return
        await asyncio.gather(*(post.stop(grace) for post in self._posts.values()))
        left = asyncio.Event()
        self._roster.leave(lambda: self._company.tell(left.set))
        self._company.throne.nudge()
        try:
            async with asyncio.timeout(LEAVE_WITHIN):
                await left.wait()
        except TimeoutError:
            log.debug("nobody was told that this instance runs no services any more")
        self._company.throne.remove(self._roster)

    def _changed(self) -> None:
        self._roster.changed()
        self._company.throne.nudge()
