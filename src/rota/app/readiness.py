"""Readiness of this instance for requests, with the reasons if it is not ready.

It is not ready during startup, while it drains, while the database is unreachable, and with a schema that
it cannot use. The database is probed once a second at most, regardless of the number of readiness requests.
The probe has its own connection, because an exhausted pool is no sign of an unreachable database. A probe
takes a second at most. A refused connection counts at once. A timeout counts only if the next probe times
out as well: otherwise a short delay of the database would take all instances out of service together.

`drain()` begins the shutdown, whether a signal or an operator requested it.
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
    """Reason why this instance is not ready: a code for programs and a message for people."""

    code: Code
    message: str


STARTING = UnreadyReason("starting", "this instance is starting")
DRAINING = UnreadyReason(
    "draining", "this instance is shutting down: it finishes its requests and jobs"
)


class Readiness:
    """Readiness of one app in one process. It is ready unless there is a reason against it."""

    def __init__(self, open_client: Callable[[], Awaitable[Client]]) -> None:
        self.has_lifespan = False
        """True if a lifespan manages the app in this process."""
        self.is_starting = False
        """True from the beginning of an orderly start until it is complete."""
        self.is_drain_managed = False
        """True if `rota serve` or `Drain` begins the shutdown, before the server does."""
        self.awaits_server = False
        """True until a server that includes the app answers requests. Its start has more parts than that of
        the app."""
        self.is_draining = False
        self.draining_since: float | None = None
        """Monotonic time."""
        self.drain_delay = 0.0
        """Seconds after `draining_since` for which requests are still served."""
        self.is_hurried = False
        self._open_client = open_client
        self._probes: WeakKeyDictionary[asyncio.AbstractEventLoop, DatabaseProbe] = (
            WeakKeyDictionary()
        )
        self._on_drain: list[Callable[[], object]] = []
        self._on_hurry: list[Callable[[], object]] = []

    async def reasons(self) -> list[UnreadyReason]:
        """Return the reasons why this instance is not ready; an empty list if it is ready."""
        flags = ((STARTING, self.is_starting or self.awaits_server), (DRAINING, self.is_draining))
        if found := [reason for reason, applies in flags if applies]:
            return found  # no probe needed: answer at once
        import asyncio

        from rota.app.database_probe import DatabaseProbe

        loop = asyncio.get_running_loop()
        probe = self._probes.get(loop)
        if probe is None:
            probe = self._probes[loop] = DatabaseProbe(self._open_client)
        reason = await probe.latest()
        return [] if reason is None else [reason]

    # Shutdown

    def drain(self, delay: float = 0.0) -> None:
        """Become unready and notify the worker and the services. Repeated calls have no effect.

        Requests that arrive within `delay` seconds are still served.
        """
        if self.is_draining:
            return
        self.drain_delay = delay
        self.is_draining = True
        self.draining_since = time.monotonic()
        for callback in tuple(self._on_drain):
            callback()

    def hurry(self) -> None:
        """Drain without waiting for running work."""
        self.drain()
        if self.is_hurried:
            return
        self.is_hurried = True
        for callback in tuple(self._on_hurry):
            callback()

    def on_drain(
        self, callback: Callable[[], object], on_hurry: Callable[[], object] = lambda: None
    ) -> Callable[[], None]:
        """Subscribe to the shutdown, and return a function to unsubscribe.

        `callback` is called when this instance drains, `on_hurry` when it must hurry; at once if it does so
        already.
        """
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
        """Begin to start, possibly again: reset the state of an earlier shutdown."""
        self.has_lifespan = self.is_starting = True
        self.is_draining = self.is_hurried = False
        self.draining_since, self.drain_delay = None, 0.0

    def mark_stopped(self) -> None:
        self.has_lifespan = self.is_starting = False

    async def close(self) -> None:
        """Close the probe of this event loop."""
        import asyncio

        probe = self._probes.pop(asyncio.get_running_loop(), None)
        if probe is not None:
            await probe.close()
