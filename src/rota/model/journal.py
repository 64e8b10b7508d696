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

EntryKind = Literal["step", "sleep", "wait", "value", "version"]

_REQUIRED_KINDS: frozenset[EntryKind] = frozenset(("step", "sleep", "wait"))
"""What leaves something behind, or takes time: it cannot be passed over. Values can."""


class StoredEntry(msgspec.Struct, gc=False, eq=False):
    """One of those things, as an earlier attempt has left it."""

    kind: EntryKind
    name: str
    number: int
    position: int
    in_main_branch: bool
    is_open: bool
    tries: int
    remaining: float | None
    """Seconds from when this was read until it is over; None: there is no such time."""
    result: str | None
    error: str | None
    has_signal: bool = False
    """Of a wait: whether the signal has come."""
    payload: str | None = None
    branch_key: str = ""
    """Which of its name it is in its line: "3" in the job's own, "2.1.3" in a branch. Nothing: its number
    says so."""


class JournalEntry(msgspec.Struct, gc=False, eq=False):
    """One of those things, to be kept."""

    kind: EntryKind
    name: str
    number: int
    position: int
    in_main_branch: bool
    is_open: bool = False
    tries: int = 1
    duration: float = 0.0
    seconds: float | None = None
    """It is over in so many seconds, by the database's clock."""
    until: str | None = None
    """… or then."""
    result: str | None = None
    error: str | None = None
    branch_key: str = ""

    def __str__(self) -> str:
        return entry_label(self.kind, self.name, self.number)


class Replay:
    def __init__(self, job: int, stored: Iterable[StoredEntry] = ()) -> None:
        self._job = job
        entries = sorted(stored, key=lambda each: each.position)
        self._stored = {(each.kind, each.name, each.number): each for each in entries}
        # What has not been asked for yet, in its order.
        self._unmatched = {(each.kind, each.name, _branch_key(each)): each for each in entries}
        self._counts: Counter[tuple[EntryKind, str, str]] = Counter()
        self._max_numbers: Counter[tuple[EntryKind, str]] = Counter()
        for each in entries:
            self._max_numbers[each.kind, each.name] = max(
                self._max_numbers[each.kind, each.name], each.number
            )
        self._next_position = entries[-1].position + 1 if entries else 1

    def next_entry(
        self, kind: EntryKind, name: str, branch: str = ""
    ) -> tuple[JournalEntry, StoredEntry | None]:
        """The code comes to something, in a line of its own: how it is to be kept, and what was kept of it.
        Raises ReplayMismatch."""
        self._counts[kind, name, branch] += 1
        nth = self._counts[kind, name, branch]
        branch_key = f"{branch}{nth}"
        stored = self._unmatched.pop((kind, name, branch_key), None)
        if stored is not None:
            entry = JournalEntry(
                kind,
                name,
                stored.number,
                stored.position,
                stored.in_main_branch,
                tries=stored.tries,
            )
            entry.branch_key = stored.branch_key
            return entry, stored
        if not branch and self._unmatched and kind in _REQUIRED_KINDS:
            self._check_none_skipped(entry_label(kind, name, nth))
        # Where there are no branches it is the same.
        number = nth if nth > self._max_numbers[kind, name] else self._max_numbers[kind, name] + 1
        self._max_numbers[kind, name] = number
        entry = JournalEntry(kind, name, number, self._next_position, not branch)
        entry.branch_key = "" if branch_key == str(number) else branch_key
        self._next_position += 1
        return entry, None

    def version(self, change: str, *, in_main_branch: bool) -> tuple[JournalEntry | None, bool]:
        """Whether a change of the code goes for this job: how that is to be kept, if it is not yet. It does
        not if the job has come further than this with the old code."""
        stored = self._unmatched.pop(("version", change, "1"), None) or self._stored.get(
            ("version", change, 1)
        )
        if stored is not None:
            return None, stored.result == "true"
        has_advanced = next(self._skipped(in_main_branch), None) is not None
        entry = JournalEntry("version", change, 1, self._next_position, in_main_branch)
        entry.result = "false" if has_advanced else "true"
        self._next_position += 1
        self._stored["version", change, 1] = StoredEntry(
            "version", change, 1, entry.position, in_main_branch, False, 1, None, entry.result, None
        )
        return entry, not has_advanced

    @property
    def is_replaying(self) -> bool:
        """Whether the code's own line has not come as far as it had before."""
        return bool(self._unmatched) and next(self._skipped(in_main_branch=True), None) is not None

    def check_complete(self) -> None:
        """The code has returned. Raises ReplayMismatch if it has not come to something it had come to."""
        self._check_none_skipped("its end")

    def _check_none_skipped(self, reached: str) -> None:
        for stored in self._skipped(in_main_branch=True):
            expected = entry_label(stored.kind, stored.name, stored.number)
            raise ReplayMismatch(
                f"job {self._job} comes to {reached} where it had come to {expected} before: its code has "
                f"changed. Deploy code that comes to {expected} there (ctx.version(…) tells old runs from "
                f"new ones), then let it go on with `rota release {self._job}`; or cancel it, or fork it "
                "from a step before",
                actual=reached,
                expected=expected,
            )

    def _skipped(self, in_main_branch: bool) -> Iterator[StoredEntry]:
        return (
            each
            for each in self._unmatched.values()
            if each.kind in _REQUIRED_KINDS and (each.in_main_branch or not in_main_branch)
        )


def _branch_key(stored: StoredEntry) -> str:
    return stored.branch_key or str(stored.number)


def entry_label(kind: str, name: str, number: int) -> str:
    """As a person says it: step 'charge', step 'charge' no. 2, sleep no. 3."""
    text = kind if kind == "sleep" and name == "sleep" else f"{kind} {name!r}"
    return text if number == 1 else f"{text} no. {number}"
