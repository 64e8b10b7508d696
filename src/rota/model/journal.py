"""Replay of a job's journal: stored entries are returned again, new entries are appended.

Each durable operation (a step, a sleep, a wait, a value) has a kind, a name and a branch key: its count
among the operations of that name in its branch. An entry that an earlier attempt stored under these is
returned again, also after a sleep or a crash. Any other operation creates a new entry, stored in the order
of execution. For people and for the database, entries of one kind and name are numbered.

Changed code may request a new entry where the journal holds a different one. In the main branch, where
operations run one after another, this is detected: no new entry may precede a stored one that has not been
replayed. Concurrent branches (`asyncio.gather`) run in any order, so there is no such check for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from rota.errors import ReplayMismatch

EntryKind = Literal["step", "sleep", "wait", "value", "version"]

_REQUIRED_KINDS: frozenset[EntryKind] = frozenset(("step", "sleep", "wait"))
"""Kinds with side effects or a duration. The code must replay such entries; it may leave out the other
kinds."""


class StoredEntry(msgspec.Struct, gc=False, eq=False):
    """Journal entry that an earlier attempt stored."""

    kind: EntryKind
    name: str
    number: int
    position: int
    in_main_branch: bool
    is_open: bool
    tries: int
    remaining: float | None
    """Seconds from the time of reading until the entry is due; None if it has no due time."""
    result: str | None
    error: str | None
    has_signal: bool = False
    """For a wait: True if the signal has arrived."""
    payload: str | None = None
    branch_key: str = ""
    """Count within the branch: "3" in the main branch, "2.1.3" in another one. Empty
    if it equals `number`."""


class JournalEntry(msgspec.Struct, gc=False, eq=False):
    """Journal entry to be stored."""

    kind: EntryKind
    name: str
    number: int
    position: int
    in_main_branch: bool
    is_open: bool = False
    tries: int = 1
    duration: float = 0.0
    seconds: float | None = None
    """Seconds until the entry is due, by the database's clock."""
    until: str | None = None
    """Time at which the entry is due, instead of `seconds`."""
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
        # Stored entries that have not been replayed yet, in their order.
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
        """Return the entry for an operation of a branch, and the stored entry if there is one. Raise
        ReplayMismatch."""
        self._counts[kind, name, branch] += 1
        nth = self._counts[kind, name, branch]
        branch_key = f"{branch}{nth}"
        stored = self._unmatched.pop((kind, name, branch_key), None)
        if stored is not None:
            entry = JournalEntry(kind, name, stored.number, stored.position, stored.in_main_branch)
            entry.tries, entry.branch_key = stored.tries, stored.branch_key
            return entry, stored
        if not branch and self._unmatched and kind in _REQUIRED_KINDS:
            self._check_none_skipped(entry_label(kind, name, nth))
        # Without branches, this equals nth.
        number = nth if nth > self._max_numbers[kind, name] else self._max_numbers[kind, name] + 1
        self._max_numbers[kind, name] = number
        entry = JournalEntry(kind, name, number, self._next_position, not branch)
        entry.branch_key = "" if branch_key == str(number) else branch_key
        self._next_position += 1
        return entry, None

    def version(self, change: str, *, in_main_branch: bool) -> tuple[JournalEntry | None, bool]:
        """Return the entry to store, if any, and True if a change of the code applies to this job.

        The change does not apply if the old code had already passed this point.
        """
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
        """True while the main branch has stored entries that have not been replayed."""
        return bool(self._unmatched) and next(self._skipped(in_main_branch=True), None) is not None

    def check_complete(self) -> None:
        """Raise ReplayMismatch if the code has returned before every required stored entry was replayed."""
        self._check_none_skipped("its end")

    def _check_none_skipped(self, reached: str) -> None:
        for stored in self._skipped(in_main_branch=True):
            expected = entry_label(stored.kind, stored.name, stored.number)
            raise ReplayMismatch(
                f"job {self._job} reached {reached}, but its journal has {expected} here: the code has "
                f"changed since the run began. Deploy code that reaches {expected} here (ctx.version(…) "
                f"separates old runs from new ones) and run `rota release {self._job}`; or cancel the "
                "run, or fork it from an earlier step",
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
    """Return the entry for messages: step 'charge', step 'charge' no. 2, sleep no. 3."""
    text = kind if kind == "sleep" and name == "sleep" else f"{kind} {name!r}"
    return text if number == 1 else f"{text} no. {number}"
