"""Who of the others is dead, by what one observer has seen of them without a break.

Two signs, and both are changes the observer saw with its own eyes: a beat that has not moved for as long
as a worker may be silent, and a lock that was held and is not any more, in two looks a second apart.

No clock but the observer's own is asked, so a database whose clock jumps kills nobody. And nothing is
inferred from what it did not see: after its own connection broke, or it slept, it has seen nothing yet.
So an outage ends nobody's life but that of a worker which does not come back from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SECOND_LOOK = 1.0
"""Seconds between the two looks that find a lock gone."""


class Seen(Protocol):
    """What is seen of a worker in one look."""

    @property
    def worker(self) -> int: ...

    @property
    def beats(self) -> int: ...

    @property
    def seated(self) -> bool | None:
        """Whether the lock is held; None: there is none."""


@dataclass(slots=True)
class _Sight:
    beats: int
    since: float
    was_seated: bool = False
    gone_since: float | None = None


class Watch:
    def __init__(self, dead_after: float) -> None:
        self._dead_after = dead_after
        self._sights: dict[int, _Sight] = {}
        self._looked: float | None = None
        self.look_again_in: float | None = None
        """Seconds until the look that decides; None: there is nothing to decide."""

    def forget(self) -> None:
        """Something broke: what was seen before it counts for nothing."""
        self._sights.clear()
        self._looked = None
        self.look_again_in = None

    def see(self, seen: Sequence[Seen], now: float) -> list[int]:
        """Take in one look; answers who is dead."""
        gap = 0.0 if self._looked is None else now - self._looked
        if gap > self._dead_after / 2:
            # We were frozen, or starved. So, perhaps, was everybody here.
            self.forget()
        self._looked = now
        self.look_again_in = None
        known, self._sights = self._sights, {}
        dead = []
        for each in seen:
            sight = known.get(each.worker)
            if sight is None or sight.beats != each.beats:
                was_seated = sight is not None and sight.was_seated
                gone_since = sight.gone_since if sight is not None else None
                sight = _Sight(each.beats, now, was_seated, gone_since)
            self._sights[each.worker] = sight
            if gap > 2 * SECOND_LOOK:
                sight.gone_since = None  # nor had it its second to come back
            if self._is_gone(sight, each.seated, now) or now - sight.since >= self._dead_after:
                dead.append(each.worker)
        return dead

    def _is_gone(self, sight: _Sight, seated: bool | None, now: float) -> bool:
        if seated is not False:
            sight.was_seated = seated is True
            sight.gone_since = None
            return False
        if not sight.was_seated:
            return False  # perhaps it is only about to sit down
        if sight.gone_since is None:
            sight.gone_since = now
        left = SECOND_LOOK - (now - sight.gone_since)
        if left <= 0:
            return True
        self.look_again_in = left if self.look_again_in is None else min(self.look_again_in, left)
        return False
