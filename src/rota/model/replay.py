"""What a job's code has come to, and what it comes to now: given again, or new, or not as it was.

Each thing the code asks for that must be the same the next time (a step, a sleep, a wait, a value) has a
kind and a name, and a place: which of that name it is in its line of code. What was kept under them by an
earlier attempt, or before a sleep or a crash, is given again; the rest is new, and kept in the order in
which it was asked for. For people, and for the database, those of one name are numbered.

Code that has changed meanwhile may ask for something new where it had come to something else. In the job's
own line of code, where one thing comes after another, that can be told: nothing new is asked for while
something kept has not been asked for. In branches that run beside it (`asyncio.gather`) the order is
anybody's, so nothing is said about it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from rota.errors import ReplayMismatch

Kind = Literal["step", "sleep", "wait", "value", "version"]

_DONE: frozenset[Kind] = frozenset(("step", "sleep", "wait"))
"""What leaves something behind, or takes time: it cannot be passed over. Values can."""


class Kept(msgspec.Struct, gc=False, eq=False):
    """One of those things, as an earlier attempt has left it."""

    kind: Kind
    name: str
    number: int
    position: int
    own: bool
    open: bool
    tries: int
    rest: float | None
    """Seconds from when this was read until it is over; None: there is no such time."""
    result: str | None
    error: str | None
    said: bool = False
    """Of a wait: whether the signal has come."""
    payload: str | None = None
    place: str = ""
    """Which of its name it is in its line: "3" in the job's own, "2.1.3" in a branch. Nothing: its number
    says so."""


class Entry(msgspec.Struct, gc=False, eq=False):
    """One of those things, to be kept."""

    kind: Kind
    name: str
    number: int
    position: int
    own: bool
    open: bool = False
    tries: int = 1
    took: float = 0.0
    seconds: float | None = None
    """It is over in so many seconds, by the database's clock."""
    until: str | None = None
    """… or then."""
    result: str | None = None
    error: str | None = None
    place: str = ""

    def __str__(self) -> str:
        return label(self.kind, self.name, self.number)


class Replay:
    def __init__(self, job: int, kept: Iterable[Kept] = ()) -> None:
        self._job = job
        known = sorted(kept, key=lambda each: each.position)
        self._kept = {(each.kind, each.name, each.number): each for each in known}
        # What has not been asked for yet, in its order.
        self._ahead = {(each.kind, each.name, _place(each)): each for each in known}
        self._asked: Counter[tuple[Kind, str, str]] = Counter()
        self._most: Counter[tuple[Kind, str]] = Counter()
        for each in known:
            self._most[each.kind, each.name] = max(self._most[each.kind, each.name], each.number)
        self._position = known[-1].position + 1 if known else 1

    def ask(self, kind: Kind, name: str, line: str = "") -> tuple[Entry, Kept | None]:
        """The code comes to something, in a line of its own: how it is to be kept, and what was kept of it.
        Raises ReplayMismatch."""
        self._asked[kind, name, line] += 1
        nth = self._asked[kind, name, line]
        place = f"{line}{nth}"
        kept = self._ahead.pop((kind, name, place), None)
        if kept is not None:
            entry = Entry(kind, name, kept.number, kept.position, kept.own, tries=kept.tries)
            entry.place = kept.place
            return entry, kept
        if not line and self._ahead and kind in _DONE:
            self._refuse_beside_kept(label(kind, name, nth))
        # Where there are no branches it is the same.
        number = nth if nth > self._most[kind, name] else self._most[kind, name] + 1
        self._most[kind, name] = number
        entry = Entry(kind, name, number, self._position, not line)
        entry.place = "" if place == str(number) else place
        self._position += 1
        return entry, None

    def version(self, change: str, *, own: bool) -> tuple[Entry | None, bool]:
        """Whether a change of the code goes for this job: how that is to be kept, if it is not yet. It does
        not if the job has come further than this with the old code."""
        kept = self._ahead.pop(("version", change, "1"), None) or self._kept.get(
            ("version", change, 1)
        )
        if kept is not None:
            return None, kept.result == "true"
        further = next(self._passed(own), None) is not None
        entry = Entry("version", change, 1, self._position, own)
        entry.result = "false" if further else "true"
        self._position += 1
        self._kept["version", change, 1] = Kept(
            "version", change, 1, entry.position, own, False, 1, None, entry.result, None
        )
        return entry, not further

    @property
    def is_behind(self) -> bool:
        """Whether the code's own line has not come as far as it had before."""
        return bool(self._ahead) and next(self._passed(own=True), None) is not None

    def end(self) -> None:
        """The code has returned. Raises ReplayMismatch if it has not come to something it had come to."""
        self._refuse_beside_kept("its end")

    def _refuse_beside_kept(self, what: str) -> None:
        for kept in self._passed(own=True):
            before = label(kept.kind, kept.name, kept.number)
            raise ReplayMismatch(
                f"job {self._job} comes to {what} where it had come to {before} before: its code has "
                f"changed. Deploy code that comes to {before} there (ctx.version(…) tells old runs from "
                f"new ones), then let it go on with `rota release {self._job}`; or cancel it, or fork it "
                "from a step before",
                asked=what,
                kept=before,
            )

    def _passed(self, own: bool) -> Iterator[Kept]:
        return (
            each for each in self._ahead.values() if each.kind in _DONE and (each.own or not own)
        )


def _place(kept: Kept) -> str:
    return kept.place or str(kept.number)


def label(kind: str, name: str, number: int) -> str:
    """As a person says it: step 'charge', step 'charge' no. 2, sleep no. 3."""
    what = kind if kind == "sleep" and name == "sleep" else f"{kind} {name!r}"
    return what if number == 1 else f"{what} no. {number}"
