"""Whether this instance wants requests, and if not, why not.

It does not while it starts, from the moment it drains, while the database is away, and with a schema it
cannot work on. However many ask, the database is looked at once a second at most, on a connection of its
own: that all the others are lent out says nothing about the database. A look takes a second at most. One
refused counts at once, one without an answer when the next has none either: a database that is slow for a
moment would otherwise take every instance out of service together.

`drain()` is where leaving begins, whoever asks for it: a signal, or an operator.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

    from rota.app.client import Client
    from rota.app.database_probe import DatabaseProbe

Code = Literal["starting", "draining", "database", "schema"]


@dataclass(frozen=True, slots=True)
class UnreadyReason:
    """Why no request is wanted here: a word for programs, a sentence for people."""

    code: Code
    message: str


STARTING = UnreadyReason("starting", "this instance is starting")
DRAINING = UnreadyReason("draining", "this instance is leaving: it finishes what it has")


class Readiness:
    """Of one app in one process. Ready unless there is a reason not to be."""

    def __init__(self, open_client: Callable[[], Awaitable[Client]]) -> None:
        self.has_lifespan = False
        """Whether a lifespan looks after the app here."""
        self.is_starting = False
        """Set by whoever starts the app in order, until all of it is up."""
        self.is_drain_managed = False
        """Whether somebody begins to leave ahead of the server, and says when: `rota serve`, `Drain`."""
        self.awaits_server = False
        """Set by whoever serves an API with it, until requests are answered there: much may come before and
        after the app's own start."""
        self.is_draining = False
        self.draining_since: float | None = None
        """By the clock that only moves forward."""
        self.drain_delay = 0.0
        """Seconds from then on for which requests that come all the same are served as ever."""
        self.is_hurried = False
        self._open_client = open_client
        self._probes: WeakKeyDictionary[asyncio.AbstractEventLoop, DatabaseProbe] = (
            WeakKeyDictionary()
        )
        self._on_drain: list[Callable[[], object]] = []
        self._on_hurry: list[Callable[[], object]] = []

    async def reasons(self) -> list[UnreadyReason]:
        """Why no request is wanted here; an empty list: they are."""
        flags = ((STARTING, self.is_starting or self.awaits_server), (DRAINING, self.is_draining))
        if found := [reason for reason, applies in flags if applies]:
            return found  # whatever the database says: the answer is no, and comes at once
        import asyncio

        from rota.app.database_probe import DatabaseProbe

        loop = asyncio.get_running_loop()
        probe = self._probes.get(loop)
        if probe is None:
            probe = self._probes[loop] = DatabaseProbe(self._open_client)
        reason = await probe.latest()
        return [] if reason is None else [reason]

    # Leaving

    def drain(self, delay: float = 0.0) -> None:
        """Want no more requests, and let whoever works here know. Those that come within `delay` seconds
        are served as ever. Asked again, it is the same leaving."""
        if self.is_draining:
            return
        self.drain_delay = delay
        self.is_draining = True
        self.draining_since = time.monotonic()
        for callback in tuple(self._on_drain):
            callback()

    def hurry(self) -> None:
        """Leave, and do not wait for what runs."""
        self.drain()
        if self.is_hurried:
            return
        self.is_hurried = True
        for callback in tuple(self._on_hurry):
            callback()

    def on_drain(
        self, callback: Callable[[], object], on_hurry: Callable[[], object] = lambda: None
    ) -> Callable[[], None]:
        """What to do when this instance leaves, and when it is to hurry; at once if it does so already.
        Call the answer to be told no more."""
        self._on_drain.append(callback)
        self._on_hurry.append(on_hurry)
        if self.is_draining:
            callback()
        if self.is_hurried:
            on_hurry()

        def unsubscribe() -> None:
            self._on_drain.remove(callback)
            self._on_hurry.remove(on_hurry)

        return unsubscribe

    def mark_starting(self) -> None:
        """Start, perhaps once more: what was said of an earlier life here is over."""
        self.has_lifespan = self.is_starting = True
        self.is_draining = self.is_hurried = False
        self.draining_since, self.drain_delay = None, 0.0

    def mark_stopped(self) -> None:
        self.has_lifespan = self.is_starting = False

    async def close(self) -> None:
        """Hang up, in this event loop."""
        import asyncio

        probe = self._probes.pop(asyncio.get_running_loop(), None)
        if probe is not None:
            await probe.close()
