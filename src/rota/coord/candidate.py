"""One name that this instance wants to lead under. Whether it does is asked of the clock, from any thread.

A term that was once over is not held again, whatever a late answer says; it is over as soon as it cannot
be trusted any more, and nobody need have noticed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from rota.coord import trust

TRUST = 0.6
"""The share of a lease for which a term is trusted after it was last seen to stand."""

PROBE = 0.2
"""The share of a lease after which it is looked at again."""

Reluctance = Callable[[Sequence[str]], float]
"""Given all names that are vacant at this moment: the seconds for which this instance would rather have
somebody else elected."""


class Candidate:
    """`elected` and `deposed` are called in any thread, in the order in which it came about, with the term,
    and why it is over."""

    def __init__(
        self,
        name: str,
        seat: int,
        lease: float,
        label: str,
        elected: Callable[[int], None],
        deposed: Callable[[int, str], None],
        reluctance: Reluctance | None = None,
    ) -> None:
        self.name = name
        self.seat = seat
        self.lease = lease
        self.label = label
        self.reluctance = reluctance
        self.vacant_since: float | None = None
        self.due = 0.0
        """When it is to be looked at, or stood for, again."""
        self.since = 0.0
        self.seated = False
        """Whether the term is held by a seat in a session."""
        self._tell_elected = elected
        self._tell_deposed = deposed
        self._term: int | None = None
        self._until = 0.0
        self._abstains_until = 0.0
        self._withdrawn = False
        self._process = os.getpid()
        # Told under it, too: who is told of a term hears of its end after its beginning. One thread may ask
        # while it is asking, in a signal's handler.
        self._lock = threading.RLock()

    @property
    def term(self) -> int | None:
        """The last it has won, until somebody has noticed that it is over."""
        return self._term

    @property
    def until(self) -> float:
        return self._until

    def leads(self, term: int | None = None) -> bool:
        """Right also in a program that was asleep, and in one that was forked from it."""
        with self._lock:
            known = self._term is not None and term in (None, self._term)
            return known and trust.now() < self._until and os.getpid() == self._process

    def abstains(self) -> bool:
        return trust.now() < self._abstains_until

    def hurry(self) -> None:
        """Stand at once, as somebody has left, unless it is left to others."""
        with self._lock:
            if self._term is None and not self.abstains():
                self.due = 0.0

    # In the keeper's thread

    def won(self, term: int, sent: float, lease: float, *, seated: bool) -> bool:
        """False: nobody wants it any more. `lease`: for how long, from when it was sent, the server gives
        the name to nobody else."""
        with self._lock:
            if self._withdrawn:
                return False
            self.seated = seated
            self.since = sent
            self.vacant_since = None
            self._until = sent + TRUST * lease
            self.due = sent + PROBE * lease
            self._term = term
            self._tell_elected(term)
            return True

    def confirmed(self, term: int, sent: float, lease: float) -> bool:
        """False: that term is over."""
        with self._lock:
            if not self.leads(term):
                return False
            self._until = sent + TRUST * lease
            self.due = sent + PROBE * lease
            return True

    def shorten(self, lease: float) -> None:
        """From now on the server is not as patient as it was: look at once whether it stands."""
        with self._lock:
            self._until = min(self._until, trust.now() + TRUST * lease)
            self.due = 0.0

    # In any thread

    def lose(self, term: int, why: str, abstain: float = 0.0) -> bool:
        """The term is over. False: it has been before. `abstain`: seconds to leave it to the others."""
        with self._lock:
            if self._term != term:
                return False
            self._term = None
            self._until = 0.0
            self.due = self._abstains_until = trust.now() + abstain
            self._tell_deposed(term, why)
            return True

    def withdraw(self) -> None:
        """From now on it wins nothing any more."""
        with self._lock:
            self._withdrawn = True
