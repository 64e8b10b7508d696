"""What there is to see of a demo at one moment, as plain values: who draws it asks nobody."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_EVENTS = 5
"""Events that are kept in view."""


@dataclass(slots=True)
class ProgressRow:
    """One thing that goes on: how far it is, if it ends, and a few words on it."""

    name: str
    done: int = 0
    total: int | None = None
    count: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class DemoWorker:
    """A worker as it is shown."""

    worker: int
    pid: int
    state: str
    """works, stopping, killed or left."""
    held: int
    text: str


@dataclass(frozen=True, slots=True)
class DemoEvent:
    seconds: float
    """Seconds since the beginning."""
    text: str
    style: str


@dataclass(slots=True)
class DemoState:
    seconds: float
    began: float | None = None
    """None: it is being set up; `doing` says how far that is."""
    setup_step: str = ""
    link_to: Callable[[str], str] | None = None
    """The link that signs a browser in and leads to a page of the dashboard, if there is one."""
    flow_run: int | None = None
    """A run that is under way, to look at."""
    progress_rows: list[ProgressRow] = field(default_factory=list)
    workers: list[DemoWorker] = field(default_factory=list)
    events: deque[DemoEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    flow_started: asyncio.Event = field(default_factory=asyncio.Event)
    """There is such a run."""
    unprinted: list[DemoEvent] = field(default_factory=list)
    """What nobody has been told yet who has no terminal."""

    @property
    def elapsed(self) -> float:
        return 0.0 if self.began is None else time.monotonic() - self.began

    @property
    def dashboard_url(self) -> str | None:
        return None if self.link_to is None else self.link_to("/")

    @property
    def flow_url(self) -> str | None:
        if self.link_to is None or self.flow_run is None:
            return None
        return self.link_to(f"/runs/{self.flow_run}")

    def show_flow_run(self, run: int) -> None:
        self.flow_run = run
        self.flow_started.set()

    def add_event(self, text: str, style: str = "") -> None:
        event = DemoEvent(self.elapsed, text, style)
        self.events.append(event)
        self.unprinted.append(event)
