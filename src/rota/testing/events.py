"""Waiting for events of the engine, instead of sleeping for a fixed time.

A recorder keeps every event since it subscribed, so an event is found whether it is published before or
after the test waits for it.
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

MAX_LISTED_EVENTS = 20
"""Number of latest events listed in the error message."""


class EventNotSeen(RotaError, TimeoutError):
    """The event was not published in time; the message lists the events that were."""


class EventRecorder:
    """Records the events of an app from its creation until it is closed."""

    def __init__(self, app: Rota) -> None:
        self.events: list[Event] = []
        self._checks: list[Callable[[Event], None]] = []
        self._unsubscribe = app.subscribe(self._on_event)

    async def wait_for_event(
        self, kind: type[E], /, *, timeout: float = 30.0, **expected: Any
    ) -> E:
        """Return the first event of this kind with these field values, waiting for it up to `timeout`
        seconds.
        """
        unknown = expected.keys() - {each.name for each in fields(kind)}
        if unknown:
            raise ArgumentError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")

        loop = asyncio.get_running_loop()
        matched: asyncio.Future[E] = loop.create_future()

        def resolve(event: E) -> None:
            if not matched.done():
                matched.set_result(event)

        def check(event: Event) -> None:
            if isinstance(event, kind) and _matches(event, expected):
                loop.call_soon_threadsafe(resolve, event)

        self._checks.append(check)
        try:
            for event in tuple(self.events):
                check(event)
            async with asyncio.timeout(timeout):
                return await matched
        except TimeoutError:
            raise EventNotSeen(self._describe_timeout(kind, expected, timeout)) from None
        finally:
            self._checks.remove(check)

    def close(self) -> None:
        """Stop recording."""
        self._unsubscribe()

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        for check in tuple(self._checks):
            check(event)

    def _describe_timeout(self, kind: type[Event], expected: dict[str, Any], timeout: float) -> str:
        expected_text = ", ".join(f"{name}={value!r}" for name, value in expected.items())
        latest = "".join(f"\n  {event}" for event in self.events[-MAX_LISTED_EVENTS:])
        unlisted = len(self.events) - MAX_LISTED_EVENTS
        return (
            f"no {kind.__name__}({expected_text}) within {timeout:g} s; "
            + (f"of {len(self.events)} events the latest were:" if unlisted > 0 else "there were:")
            + (latest or " no events")
        )


def _matches(event: Event, expected: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in expected.items())
