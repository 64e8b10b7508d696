"""Which alerts are open, given what there is to tell and what was open: pure, to be tried with anything.

An alert is opened at once, and closed only after it has not been so for `CALM` seconds on end: what comes
and goes faster than that is one alert, not many.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rota.model.findings import Finding
from rota.model.rules import Rules

CALM = 30.0
"""Seconds for which it must not have been so before it is over."""


@dataclass(frozen=True, slots=True)
class Open:
    id: int
    kind: str
    subject: str
    message: str
    calm: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    raised: list[Finding] = field(default_factory=list)
    said: list[tuple[int, str]] = field(default_factory=list)
    """What is so still, in other words, or again."""
    calmed: list[int] = field(default_factory=list)
    """No longer so, as of now."""
    closed: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.raised or self.said or self.calmed or self.closed)


def decide(
    rules: Rules,
    found: Sequence[Finding],
    known: Collection[Open],
    now: datetime,
    calm: float = CALM,
) -> Decision:
    """Of alerts that are found by looking; `known` are those that are open."""
    decision = Decision()
    by_key = {each.key: each for each in found}
    for alert in known:
        finding = by_key.pop((alert.kind, alert.subject), None)
        if finding is not None:
            if finding.message != alert.message or alert.calm is not None:
                decision.said.append((alert.id, finding.message))
        elif not rules.tells(alert.kind):
            decision.closed.append(alert.id)
        elif alert.calm is None or alert.calm > now:
            decision.calmed.append(alert.id)
        elif now - alert.calm >= timedelta(seconds=calm):
            decision.closed.append(alert.id)
    decision.raised.extend(each for each in by_key.values() if each.over)
    return decision
