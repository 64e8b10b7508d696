"""A hold as its holder sees it: trusted until a time, renewed before it, lost for good after it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rota.coord import trust

RENEWALS = 3
"""A hold is renewed so many times over before it would run out."""


class Lease:
    """What is lost stays lost, whatever a late answer says. `tell` is called once, from any thread, with
    why it was lost."""

    def __init__(
        self, name: str, slot: int, token: int, ttl: float, sent: float, tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self.slot = slot
        self.token = token
        self.ttl = ttl
        self.since = self.sent = sent
        self.due = sent + ttl / RENEWALS
        self.longest: float | None = None
        self._until = sent + trust.relied_on(ttl)
        self._tell = tell
        self._why: str | None = None
        self.ended = False
        self._process = os.getpid()
        # Who asks while it is being renewed waits for the answer: what was once called lost is not held
        # again. One thread may ask while it is asking, in a signal's handler.
        self._lock = threading.RLock()

    @property
    def until(self) -> float:
        """When it is lost, unless it is renewed before."""
        return self._until

    @property
    def doubtful(self) -> float:
        """When it will have been due for as long as it was not, unless it is renewed before."""
        return self.sent + 2 * self.ttl / RENEWALS

    def held(self) -> bool:
        """Asked of the clock, not of anybody's memory: right also in a program that was asleep."""
        with self._lock:
            good = not self.ended and self._why is None and trust.now() < self._until
        return good and not self.inherited

    @property
    def inherited(self) -> bool:
        """Whether it is that of the process that this one was forked from."""
        return os.getpid() != self._process

    @property
    def why(self) -> str | None:
        """Why it was lost; None: it was not."""
        if self.inherited:
            return INHERITED
        with self._lock:
            ran_out = self._why is None and not self.ended and trust.now() >= self._until
        if ran_out:
            self.lose(RAN_OUT)
        return self._why

    def renewed(self, sent: float) -> None:
        with self._lock:
            if self._why is None and not self.ended and trust.now() < self._until:
                self.sent = sent
                self._until = sent + trust.relied_on(self.ttl)
                self.due = sent + self.ttl / RENEWALS

    def lose(self, why: str) -> bool:
        """False: it was lost before, or given back."""
        with self._lock:
            if self.ended or self._why is not None:
                return False
            self._why = why
        self._tell(why)
        return True

    def end(self) -> None:
        """It was given back."""
        with self._lock:
            self.ended = True


RAN_OUT = "it ran out: it could not be renewed in time"
TAKEN = "somebody else has it, or has taken it away"
CLOSED = "the app was closed while it was held"
INHERITED = "it is held by the process that this one was forked from"
