"""Which alerts are open, given what there is to tell and what was open: pure, to be tried with anything.

An alert is opened at once, and closed only after it has not been so for `CALM` seconds on end: what comes
and goes faster than that is one alert, not many.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rota.model.findings import Finding
from rota.model.rules import AlertRules

CLOSE_AFTER_SECONDS = 30.0
"""Seconds for which it must not have been so before it is over."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    id: int
    kind: str
    subject: str
    message: str
    cleared_at: datetime | None


@dataclass(frozen=True, slots=True)
class AlertDecision:
    raised: list[Finding] = field(default_factory=list)
    updated: list[tuple[int, str]] = field(default_factory=list)
    """What is so still, in other words, or again."""
    cleared: list[int] = field(default_factory=list)
    """No longer so, as of now."""
    closed: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.raised or self.updated or self.cleared or self.closed)


def decide(
    rules: AlertRules,
    findings: Sequence[Finding],
    open_alerts: Collection[OpenAlert],
    now: datetime,
    close_after: float = CLOSE_AFTER_SECONDS,
) -> AlertDecision:
    """Of alerts that are found by looking; `known` are those that are open."""
    decision = AlertDecision()
    by_key = {each.key: each for each in findings}
    for alert in open_alerts:
        finding = by_key.pop((alert.kind, alert.subject), None)
        if finding is not None:
            if finding.message != alert.message or alert.cleared_at is not None:
                decision.updated.append((alert.id, finding.message))
        elif not rules.is_enabled(alert.kind):
            decision.closed.append(alert.id)
        elif alert.cleared_at is None or alert.cleared_at > now:
            decision.cleared.append(alert.id)
        elif now - alert.cleared_at >= timedelta(seconds=close_after):
            decision.closed.append(alert.id)
    decision.raised.extend(each for each in by_key.values() if each.exceeds_limit)
    return decision
