"""Waiting for what the engine announces, instead of sleeping and hoping.

A witness remembers every event since it subscribed, so it does not matter whether the event comes
before or after somebody asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from rota.errors import ArgumentError, RotaError
from rota.model.events import Event

if TYPE_CHECKING:
    from rota.app import Rota

E = TypeVar("E", bound=Event)

TOLD_OF = 20
"""How many of the events that did come a failure lists."""


class NotSeen(RotaError, TimeoutError):
    """The event did not come in time; the message says what did."""


class Witness:
    """Sees what an app announces, from the moment it is made until it is closed."""

    def __init__(self, app: Rota) -> None:
        self.events: list[Event] = []
        self._waiting: list[Callable[[Event], None]] = []
        self._unsubscribe = app.subscribe(self._hear)

    async def saw(self, kind: type[E], /, *, timeout: float = 10.0, **expected: Any) -> E:
        """The first event of this kind with these fields, once there is one."""
        unknown = expected.keys() - {each.name for each in fields(kind)}
        if unknown:
            raise ArgumentError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")

        loop = asyncio.get_running_loop()
        seen: asyncio.Future[E] = loop.create_future()

        def settle(event: E) -> None:
            if not seen.done():
                seen.set_result(event)

        def look(event: Event) -> None:
            if isinstance(event, kind) and _fits(event, expected):
                loop.call_soon_threadsafe(settle, event)

        self._waiting.append(look)
        try:
            for event in tuple(self.events):
                look(event)
            async with asyncio.timeout(timeout):
                return await seen
        except TimeoutError:
            raise NotSeen(self._account(kind, expected, timeout)) from None
        finally:
            self._waiting.remove(look)

    def close(self) -> None:
        """See nothing more."""
        self._unsubscribe()

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        for look in tuple(self._waiting):
            look(event)

    def _account(self, kind: type[Event], expected: dict[str, Any], timeout: float) -> str:
        wanted = ", ".join(f"{name}={value!r}" for name, value in expected.items())
        latest = "".join(f"\n  {event}" for event in self.events[-TOLD_OF:])
        more = len(self.events) - TOLD_OF
        return (
            f"no {kind.__name__}({wanted}) within {timeout:g} s; "
            + (f"of {len(self.events)} events the latest were:" if more > 0 else "there were:")
            + (latest or " no events")
        )


def _fits(event: Event, expected: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in expected.items())
