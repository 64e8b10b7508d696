"""One name that this instance wants to lead under. Whether it does is asked of the clock, from any thread.

A term that was once over is not held again, whatever a late answer says; it is over as soon as it cannot
be trusted any more, and nobody need have noticed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from rota.coord import trust

TRUSTED_SHARE = 0.6
"""The share of a lease for which a term is trusted after it was last seen to stand."""

PROBE_SHARE = 0.2
"""The share of a lease after which it is looked at again."""

YieldDelay = Callable[[Sequence[str]], float]
"""Given all names that are vacant at this moment: the seconds for which this instance would rather have
somebody else elected."""


class Candidate:
    """`elected` and `deposed` are called in any thread, in the order in which it came about, with the term,
    and why it is over."""

    def __init__(
        self,
        name: str,
        session_lock: int,
        lease: float,
        label: str,
        on_elected: Callable[[int], None],
        on_term_ended: Callable[[int, str], None],
        yield_delay: YieldDelay | None = None,
    ) -> None:
        self.name = name
        self.session_lock = session_lock
        self.lease = lease
        self.label = label
        self.yield_delay = yield_delay
        self.vacant_since: float | None = None
        self.due_at = 0.0
        """When it is to be looked at, or stood for, again."""
        self.elected_at = 0.0
        self.has_session_lock = False
        """Whether the term is held by a seat in a session."""
        self._on_elected = on_elected
        self._on_term_ended = on_term_ended
        self._term: int | None = None
        self._trusted_until = 0.0
        self._abstain_until = 0.0
        self._withdrawn = False
        self._pid = os.getpid()
        # Told under it, too: who is told of a term hears of its end after its beginning. One thread may ask
        # while it is asking, in a signal's handler.
        self._lock = threading.RLock()

    @property
    def term(self) -> int | None:
        """The last it has won, until somebody has noticed that it is over."""
        return self._term

    @property
    def trusted_until(self) -> float:
        return self._trusted_until

    def is_leader(self, term: int | None = None) -> bool:
        """Right also in a program that was asleep, and in one that was forked from it."""
        with self._lock:
            is_current = self._term is not None and term in (None, self._term)
            return is_current and trust.now() < self._trusted_until and os.getpid() == self._pid

    def is_abstaining(self) -> bool:
        return trust.now() < self._abstain_until

    def make_due(self) -> None:
        """Stand at once, as somebody has left, unless it is left to others."""
        with self._lock:
            if self._term is None and not self.is_abstaining():
                self.due_at = 0.0

    # In the keeper's thread

    def begin_term(
        self, term: int, sent_at: float, lease: float, *, has_session_lock: bool
    ) -> bool:
        """False: nobody wants it any more. `lease`: for how long, from when it was sent, the server gives
        the name to nobody else."""
        with self._lock:
            if self._withdrawn:
                return False
            self.has_session_lock = has_session_lock
            self.elected_at = sent_at
            self.vacant_since = None
            self._trusted_until = sent_at + TRUSTED_SHARE * lease
            self.due_at = sent_at + PROBE_SHARE * lease
            self._term = term
            self._on_elected(term)
            return True

    def confirm_term(self, term: int, sent_at: float, lease: float) -> bool:
        """False: that term is over."""
        with self._lock:
            if not self.is_leader(term):
                return False
            self._trusted_until = sent_at + TRUSTED_SHARE * lease
            self.due_at = sent_at + PROBE_SHARE * lease
            return True

    def shorten_trust(self, lease: float) -> None:
        """From now on the server is not as patient as it was: look at once whether it stands."""
        with self._lock:
            self._trusted_until = min(self._trusted_until, trust.now() + TRUSTED_SHARE * lease)
            self.due_at = 0.0

    # In any thread

    def end_term(self, term: int, reason: str, abstain_seconds: float = 0.0) -> bool:
        """The term is over. False: it has been before. `abstain`: seconds to leave it to the others."""
        with self._lock:
            if self._term != term:
                return False
            self._term = None
            self._trusted_until = 0.0
            self.due_at = self._abstain_until = trust.now() + abstain_seconds
            self._on_term_ended(term, reason)
            return True

    def withdraw(self) -> None:
        """From now on it wins nothing any more."""
        with self._lock:
            self._withdrawn = True
