"""Findings of a workload: figures by contender, ratios by pair, and bars met or missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Figure:
    """Numbers of one contender, one for each round."""

    what: str
    who: str
    unit: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)


@dataclass(frozen=True)
class Bar:
    """Budget set in advance. `more` is True if larger is better. Some have only a "beyond" limit."""

    what: str
    bar: float | None
    beyond: float | None
    more: bool
    unit: str = "×"


@dataclass(frozen=True)
class Verdict:
    bar: Bar
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.rounds)

    def _meets(self, limit: float) -> bool:
        return self.median >= limit if self.bar.more else self.median <= limit

    @property
    def word(self) -> str:
        if self.bar.beyond is not None and self._meets(self.bar.beyond):
            return "beyond"
        if self.bar.bar is None:
            return "–"
        return "pass" if self._meets(self.bar.bar) else "MISS"


@dataclass
class Findings:
    title: str
    figures: list[Figure] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, who: str, unit: str, rounds: Sequence[float]) -> None:
        self.figures.append(Figure(what, who, unit, tuple(rounds)))

    def judge(self, bar: Bar, rounds: Sequence[float]) -> None:
        self.verdicts.append(Verdict(bar, tuple(rounds)))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each pair. A pair is measured together, so common conditions cancel out."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of all samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
