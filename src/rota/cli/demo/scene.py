"""What there is to see of a demo at one moment, as plain values: who draws it asks nobody."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

LAST = 5
"""Events that are kept in view."""


@dataclass(slots=True)
class Part:
    """One thing that goes on: how far it is, if it ends, and a few words on it."""

    name: str
    done: int = 0
    total: int | None = None
    count: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Hand:
    """A worker as it is shown."""

    number: int
    pid: int
    state: str
    """works, stopping, killed or left."""
    held: int
    words: str


@dataclass(frozen=True, slots=True)
class Happening:
    after: float
    """Seconds since the beginning."""
    words: str
    style: str


@dataclass(slots=True)
class Scene:
    seconds: float
    began: float | None = None
    """None: it is being set up; `doing` says how far that is."""
    doing: str = ""
    link_to: Callable[[str], str] | None = None
    """The link that signs a browser in and leads to a page of the dashboard, if there is one."""
    flow: int | None = None
    """A run that is under way, to look at."""
    parts: list[Part] = field(default_factory=list)
    hands: list[Hand] = field(default_factory=list)
    happenings: deque[Happening] = field(default_factory=lambda: deque(maxlen=LAST))
    shown: asyncio.Event = field(default_factory=asyncio.Event)
    """There is such a run."""
    told: list[Happening] = field(default_factory=list)
    """What nobody has been told yet who has no terminal."""

    @property
    def now(self) -> float:
        return 0.0 if self.began is None else time.monotonic() - self.began

    @property
    def address(self) -> str | None:
        return None if self.link_to is None else self.link_to("/")

    @property
    def link(self) -> str | None:
        if self.link_to is None or self.flow is None:
            return None
        return self.link_to(f"/runs/{self.flow}")

    def point_to(self, run: int) -> None:
        self.flow = run
        self.shown.set()

    def tell(self, words: str, style: str = "") -> None:
        happening = Happening(self.now, words, style)
        self.happenings.append(happening)
        self.told.append(happening)
