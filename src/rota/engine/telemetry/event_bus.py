"""Publishing of events to subscribers. A subscriber that raises is logged and affects nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rota.model.events import Event

log = logging.getLogger("rota")

Subscriber: TypeAlias = "Callable[[Event], None]"


class EventBus:
    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def __bool__(self) -> bool:
        """True if there is a subscriber; without one, no event needs to be created."""
        return bool(self._subscribers)

    def publish(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:
                log.exception("a subscriber failed on %s; it stays subscribed", event)
