"""`app.queues`: have nobody take from a queue for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.engine.deeds import act
from rota.errors import ArgumentError
from rota.model import codec
from rota.store import queues
from rota.store.audit import Deed
from rota.store.queues import Pause

if TYPE_CHECKING:
    from rota.app.rota import Rota

LONGEST_NAME = 200
LONGEST_WHY = 1000


class Queues:
    """`app.queues`."""

    def __init__(self, app: Rota) -> None:
        self._app = app

    async def pause(self, queue: str, why: str = "", *, by: str | None = None) -> bool:
        """Have nobody claim its jobs, from now on, wherever they run: what runs ends as ever, what is ready
        waits. Answers whether that is new. `by`: who does so by hand, for the audit log; here and below."""
        _check("queue", queue, 1, LONGEST_NAME)
        _check("why", why, 0, LONGEST_WHY)
        return await act(
            (await self._app.open()).database,
            queues.pause(queue, by or "", why),
            None if by is None else Deed(by, "pause queue", queue, {"why": why} if why else {}),
            did=bool,
            repeats=True,
        )

    async def resume(self, queue: str, *, by: str | None = None) -> bool:
        """Have its jobs claimed again. Answers whether it was paused."""
        _check("queue", queue, 1, LONGEST_NAME)
        client = await self._app.open()
        resumed = await act(
            client.database,
            queues.resume(queue),
            None if by is None else Deed(by, "resume queue", queue),
            did=bool,
            repeats=True,
        )
        client.news.tell([queue])
        return resumed

    async def paused(self) -> list[Pause]:
        """Those that are paused, by name."""
        return await (await self._app.open()).database.insist(queues.paused())


def _check(what: str, text: str, least: int, most: int) -> None:
    if not least <= len(text) <= most or "\0" in text or codec.storable(text) != text:
        raise ArgumentError(f"{what} has {least} to {most} letters, not {text!r:.60}")
