"""Notes of processes that led, and checks on them.

An act is a moment, between two noted times, at which an instance considered itself leader. A reign is all
acts of one instance in one term.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

EARLY = {"terminate", "cut", "half open", "restart", "crash"}
"""Faults after which the server may end a session before its lease. Through a pooler no session ends."""


@dataclass(slots=True)
class LedTerm:
    instance: str
    term: int
    first: float
    """Time by which it had begun."""
    last: float
    """Time by which it had not ended."""
    acts: int = 1


@dataclass(slots=True)
class Notes:
    """Notes of one process, read while it writes them."""

    path: Path
    instance: str
    reigns: dict[int, LedTerm] = field(default_factory=dict)
    up: bool = False
    last: tuple[int, float] = (0, -math.inf)
    """Term and time of the last act."""
    order: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    _read: int = 0
    _rest: str = ""

    def read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open() as file:
            file.seek(self._read)
            text = self._rest + file.read()
            self._read = file.tell()
        *lines, self._rest = text.split("\n")
        for line in lines:
            self._take(line)

    def _take(self, line: str) -> None:
        match line.split(" ", 3):
            case ["act", number, before, after]:
                term, earliest, latest = int(number), float(before), float(after)
                self.last = term, latest
                if not self.order or self.order[-1] != term:
                    self.order.append(term)
                known = self.reigns.get(term)
                if known is None:
                    self.reigns[term] = LedTerm(self.instance, term, latest, earliest)
                else:
                    known.last = earliest
                    known.acts += 1
            case ["up", _]:
                self.up = True
            case _:
                self.said.append(line)


@dataclass(frozen=True, slots=True)
class Disruption:
    kind: str
    at: float
    instance: str
    term: int
    """Term of the leader that was disrupted."""
    taken_over: float | None
    """Seconds until another leader of a later term acted."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Write of a transaction that asserted its term: the times of the assertion and of the write."""

    instance: str
    term: int
    began: datetime
    ended: datetime


def find_leader_faults(
    notes: Iterable[Notes],
    effects: Iterable[Effect],
    disruptions: Iterable[Disruption],
    lease: float,
    trust: float,
    early: Iterable[str],
) -> list[str]:
    reigns = sorted(
        (reign for each in notes for reign in each.reigns.values()), key=lambda reign: reign.term
    )
    by_term: dict[int, set[str]] = {}
    for reign in reigns:
        by_term.setdefault(reign.term, set()).add(reign.instance)
    written = sorted(effects, key=lambda effect: (effect.term, effect.began))
    for effect in written:
        by_term.setdefault(effect.term, set()).add(effect.instance)
    found = [
        f"{sorted(who)} all acted in term {term}" for term, who in by_term.items() if len(who) > 1
    ]
    for each in notes:
        if each.order != sorted(set(each.order)):
            found.append(f"{each.instance} led in terms {each.order}: one came again")
    return [*found, *_overlaps(reigns, disruptions, lease * trust, set(early)), *_order(written)]


def _overlaps(
    reigns: list[LedTerm], disruptions: Iterable[Disruption], window: float, early: set[str]
) -> Iterator[str]:
    ended = {(each.instance, each.term): each.kind for each in disruptions}
    for at, reign in enumerate(reigns):
        kind = ended.get((reign.instance, reign.term), "nothing")
        allowed = window if kind in early else 0.0
        for later in reigns[at + 1 :]:
            over = reign.last - later.first
            if over > allowed:
                yield (
                    f"{reign.instance} in term {reign.term} (ended by {kind}) still acted {over:.4f} s "
                    f"after {later.instance} in term {later.term} had; {allowed:.3f} s may be"
                )


def widest_overlap(notes: Iterable[Notes], disruptions: Iterable[Disruption]) -> dict[str, float]:
    """Return, for each kind of fault, the longest time for which two processes acted as leader."""
    ended = {(each.instance, each.term): each.kind for each in disruptions}
    reigns = [reign for each in notes for reign in each.reigns.values()]
    widest: dict[str, float] = {}
    for reign in reigns:
        kind = ended.get((reign.instance, reign.term), "nothing")
        for later in reigns:
            if later.term > reign.term:
                over = max(reign.last - later.first, 0.0)
                widest[kind] = max(widest.get(kind, 0.0), over)
    return widest


def _order(written: list[Effect]) -> Iterator[str]:
    """Yield writes of a term that were made after a later term had begun to write."""
    latest: Effect | None = None
    for effect in written:
        if latest is not None and effect.term > latest.term and effect.began < latest.ended:
            yield (
                f"{latest.instance} wrote in term {latest.term} at {latest.ended.time()}, after "
                f"{effect.instance} had begun to in term {effect.term} at {effect.began.time()}"
            )
        if latest is None or effect.ended > latest.ended:
            latest = effect


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else math.nan
