"""Rules for alerts: which conditions raise one, and from which limit on.

    queue-age=10m                        a job may wait for ten minutes, in any queue
    worker-dead=off snapshot=2h          no alerts about dead workers; old transactions after two hours
    queue-age=10m; images: queue-age=30s ten minutes, but half a minute in queue images
    off                                  no alerts at all

Parts are separated by `;`, as in the setting `retention`. A part without a queue name applies everywhere. A
rule that a queue's part omits takes its limit from that general part, or else the default in `RULES`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from rota.model.queue_settings import UNIT_SECONDS, QueueSetting

WORKER_DEAD = "worker dead"
QUEUE_OLD = "queue too old"
SCHEDULE_LATE = "schedule late"
SCHEDULE_FAILS = "schedule fails"
QUARANTINE = "quarantine not empty"
REFUSED = "completions refused"
SNAPSHOT_OLD = "snapshot too old"
NOTIFY_FULL = "notifications pile up"
HELD_TOO_LONG = "lock held too long"
RENEWALS_FAIL = "renewals fail"
TOKEN_TWICE = "token held twice"
FLAPPING = "leader flaps"

OFF = math.inf


class AlertRule(msgspec.Struct, frozen=True):
    """Kind of alert. The keys of `RULES` are the names in the setting."""

    kind: str
    unit: str
    """Unit of the limit: span, number or percent; switch for a rule that is only on or off."""
    default: float
    by_queue: bool = False


RULES: Mapping[str, AlertRule] = {
    "worker-dead": AlertRule(WORKER_DEAD, "span", 900.0),
    "queue-age": AlertRule(QUEUE_OLD, "span", 300.0, by_queue=True),
    "schedule-late": AlertRule(SCHEDULE_LATE, "span", 60.0),
    "schedule-fails": AlertRule(SCHEDULE_FAILS, "number", 3.0),
    "quarantine": AlertRule(QUARANTINE, "number", 1.0, by_queue=True),
    "refused": AlertRule(REFUSED, "number", 10.0),
    "snapshot": AlertRule(SNAPSHOT_OLD, "span", 1800.0),
    "notify": AlertRule(NOTIFY_FULL, "percent", 0.5),
    "lock-held": AlertRule(HELD_TOO_LONG, "switch", 0.0),
    "renewals": AlertRule(RENEWALS_FAIL, "switch", 0.0),
    "token-twice": AlertRule(TOKEN_TWICE, "switch", 0.0),
    "leader-flaps": AlertRule(FLAPPING, "number", 5.0),
}

SETTING_NAMES = {rule.kind: word for word, rule in RULES.items()}

_REPORTED_KINDS = (HELD_TOO_LONG, RENEWALS_FAIL, TOKEN_TWICE, FLAPPING)
"""Kinds that are reported by the instance that detects them. The remaining kinds are found by queries."""
EVALUATED_KINDS = tuple(kind for kind in SETTING_NAMES if kind not in _REPORTED_KINDS)

_SETTING = QueueSetting(
    "alerts", "rule", "everything", "queue-age=10m snapshot=off; images: queue-age=30s"
)

_DURATION = re.compile(r"(\d{1,9})([smhdw]?)", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_PERCENT = re.compile(r"(\d{1,2}|100)%", re.ASCII)

_EXAMPLES = {"span": "5m", "number": "3", "percent": "50%", "switch": "on"}


class AlertRules(msgspec.Struct, frozen=True):
    """Limit of each rule by its name in the setting. A queue may have its own limits."""

    limits: Mapping[str, float]
    queue_limits: Mapping[str, Mapping[str, float]]

    @classmethod
    def parse(cls, text: str) -> AlertRules:
        general, queues = _SETTING.split(text)
        defaults = {name: rule.default for name, rule in RULES.items()}
        by_queue = [name for name, rule in RULES.items() if rule.by_queue]
        return cls(
            defaults | _parse_part(general or "", list(RULES)),
            {queue: _parse_part(part, by_queue) for queue, part in queues.items()},
        )

    def limit(self, kind: str, queue: str | None = None) -> float:
        """Return the limit of a kind; `OFF` if it never raises an alert."""
        name = SETTING_NAMES[kind]
        if queue is not None and name in self.queue_limits.get(queue, {}):
            return self.queue_limits[queue][name]
        return self.limits[name]

    def is_enabled(self, kind: str) -> bool:
        """True if this kind can raise an alert for at least one subject."""
        name = SETTING_NAMES.get(kind)
        return name is None or any(
            each.get(name, OFF) != OFF for each in (self.limits, *self.queue_limits.values())
        )


def _parse_part(part: str, allowed: Sequence[str]) -> dict[str, float]:
    """Return the limits of a part, which may set the `allowed` rules."""
    limits: dict[str, float] = {}
    for text in part.split():
        rule_name, equals, limit = text.partition("=")
        if text == "off":
            limits |= dict.fromkeys(allowed, OFF)
            continue
        if rule_name not in RULES or not equals:
            _SETTING.refuse(f"{text!r} is not a rule (rules: {', '.join(allowed)})")
        if rule_name not in allowed:
            _SETTING.refuse(
                f"{rule_name!r} does not belong to a queue; write it before the first `;`"
            )
        limits[rule_name] = _parse_limit(text, RULES[rule_name], limit)
    return limits


def _parse_limit(setting: str, rule: AlertRule, text: str) -> float:
    if text == "off":
        return OFF
    value: float | None = None
    if rule.unit == "span" and (match := _DURATION.fullmatch(text)):
        value = float(int(match[1]) * UNIT_SECONDS[match[2] or "s"])
    elif rule.unit == "number" and _NUMBER.fullmatch(text):
        value = float(text)
    elif rule.unit == "percent" and (match := _PERCENT.fullmatch(text)):
        value = int(match[1]) / 100
    elif rule.unit == "switch" and text == "on":
        return 0.0
    if not value:
        _SETTING.refuse(f"{setting!r} sets no limit; write it like {_EXAMPLES[rule.unit]}, or off")
    return value
