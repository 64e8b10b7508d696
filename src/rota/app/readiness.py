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
    from rota.app.looking import Look

Code = Literal["starting", "draining", "database", "schema"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why no request is wanted here: a word for programs, a sentence for people."""

    code: Code
    message: str


STARTING = Reason("starting", "this instance is starting")
DRAINING = Reason("draining", "this instance is leaving: it finishes what it has")


class Readiness:
    """Of one app in one process. Ready unless there is a reason not to be."""

    def __init__(self, open: Callable[[], Awaitable[Client]]) -> None:
        self.alive = False
        """Whether a lifespan looks after the app here."""
        self.starting = False
        """Set by whoever starts the app in order, until all of it is up."""
        self.conducted = False
        """Whether somebody begins to leave ahead of the server, and says when: `rota serve`, `Drain`."""
        self.unserved = False
        """Set by whoever serves an API with it, until requests are answered there: much may come before and
        after the app's own start."""
        self.draining = False
        self.draining_since: float | None = None
        """By the clock that only moves forward."""
        self.delay = 0.0
        """Seconds from then on for which requests that come all the same are served as ever."""
        self.hurried = False
        self._open = open
        self._looks: WeakKeyDictionary[asyncio.AbstractEventLoop, Look] = WeakKeyDictionary()
        self._on_drain: list[Callable[[], object]] = []
        self._on_hurry: list[Callable[[], object]] = []

    async def reasons(self) -> list[Reason]:
        """Why no request is wanted here; an empty list: they are."""
        flags = ((STARTING, self.starting or self.unserved), (DRAINING, self.draining))
        if found := [reason for reason, is_so in flags if is_so]:
            return found  # whatever the database says: the answer is no, and comes at once
        import asyncio

        from rota.app.looking import Look

        loop = asyncio.get_running_loop()
        look = self._looks.get(loop)
        if look is None:
            look = self._looks[loop] = Look(self._open)
        reason = await look.latest()
        return [] if reason is None else [reason]

    # Leaving

    def drain(self, delay: float = 0.0) -> None:
        """Want no more requests, and let whoever works here know. Those that come within `delay` seconds
        are served as ever. Asked again, it is the same leaving."""
        if self.draining:
            return
        self.delay = delay
        self.draining = True
        self.draining_since = time.monotonic()
        for call in tuple(self._on_drain):
            call()

    def hurry(self) -> None:
        """Leave, and do not wait for what runs."""
        self.drain()
        if self.hurried:
            return
        self.hurried = True
        for call in tuple(self._on_hurry):
            call()

    def when_draining(
        self, drain: Callable[[], object], hurry: Callable[[], object] = lambda: None
    ) -> Callable[[], None]:
        """What to do when this instance leaves, and when it is to hurry; at once if it does so already.
        Call the answer to be told no more."""
        self._on_drain.append(drain)
        self._on_hurry.append(hurry)
        if self.draining:
            drain()
        if self.hurried:
            hurry()

        def forget() -> None:
            self._on_drain.remove(drain)
            self._on_hurry.remove(hurry)

        return forget

    def begin(self) -> None:
        """Start, perhaps once more: what was said of an earlier life here is over."""
        self.alive = self.starting = True
        self.draining = self.hurried = False
        self.draining_since, self.delay = None, 0.0

    def end(self) -> None:
        self.alive = self.starting = False

    async def close(self) -> None:
        """Hang up, in this event loop."""
        import asyncio

        look = self._looks.pop(asyncio.get_running_loop(), None)
        if look is not None:
            await look.close()
