"""What is worth an alert, and from where on.

    queue-age=10m                        a job may wait for ten minutes, in any queue
    worker-dead=off snapshot=2h          … and nobody is told of workers that died
    queue-age=10m; images: queue-age=30s … and in queue images for half a minute
    off                                  nothing is told at all

Parts are separated by `;`, as in `keep`. One without a queue's name is about everything; what a queue's own
part does not say is said by that one, and what neither says by `DEFAULT`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from rota.errors import SettingsError
from rota.model.retention import UNITS

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


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be told, and how it is called in the settings."""

    kind: str
    unit: str
    """What its limit is: a span, a number, a percentage; or none, it is on or off."""
    default: float
    by_queue: bool = False


RULES: Mapping[str, Rule] = {
    "worker-dead": Rule(WORKER_DEAD, "span", 900.0),
    "queue-age": Rule(QUEUE_OLD, "span", 300.0, by_queue=True),
    "schedule-late": Rule(SCHEDULE_LATE, "span", 60.0),
    "schedule-fails": Rule(SCHEDULE_FAILS, "number", 3.0),
    "quarantine": Rule(QUARANTINE, "number", 1.0, by_queue=True),
    "refused": Rule(REFUSED, "number", 10.0),
    "snapshot": Rule(SNAPSHOT_OLD, "span", 1800.0),
    "notify": Rule(NOTIFY_FULL, "percent", 0.5),
    "lock-held": Rule(HELD_TOO_LONG, "switch", 0.0),
    "renewals": Rule(RENEWALS_FAIL, "switch", 0.0),
    "token-twice": Rule(TOKEN_TWICE, "switch", 0.0),
    "leader-flaps": Rule(FLAPPING, "number", 5.0),
}

WORDS = {rule.kind: word for word, rule in RULES.items()}

JUDGED = tuple(
    RULES[word].kind
    for word in (
        "worker-dead",
        "queue-age",
        "schedule-late",
        "schedule-fails",
        "quarantine",
        "refused",
        "snapshot",
        "notify",
    )
)
"""Kinds that are found by looking at the database; the others are noticed by whoever they happen to."""

_QUEUE = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")
_SPAN = re.compile(r"(\d{1,9})([smhdw]?)", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_PERCENT = re.compile(r"(\d{1,2}|100)%", re.ASCII)

_EXAMPLES = {"span": "5m", "number": "3", "percent": "50%", "switch": "on"}


@dataclass(frozen=True, slots=True)
class Rules:
    """The limit of each rule by its word; a queue may have its own."""

    limits: Mapping[str, float]
    queues: Mapping[str, Mapping[str, float]]

    @classmethod
    def parse(cls, text: str) -> Rules:
        limits: dict[str, float] = {word: rule.default for word, rule in RULES.items()}
        queues: dict[str, dict[str, float]] = {}
        seen = False
        for part in filter(None, map(str.strip, text.split(";"))):
            queue, said = _part(part)
            if queue is None:
                if seen:
                    _refuse(f"{part!r} is a second part about everything, make them one")
                seen = True
                limits |= said
            elif queue in queues:
                _refuse(f"queue {queue!r} has two parts, make them one")
            else:
                queues[queue] = said
        return cls(limits, queues)

    def limit(self, kind: str, queue: str | None = None) -> float:
        """From where on it is told; `OFF`: never."""
        word = WORDS[kind]
        if queue is not None and word in self.queues.get(queue, {}):
            return self.queues[queue][word]
        return self.limits[word]

    def tells(self, kind: str) -> bool:
        """Whether this is ever told, of anything."""
        word = WORDS.get(kind)
        return word is None or any(
            each.get(word, OFF) != OFF for each in (self.limits, *self.queues.values())
        )


def _part(part: str) -> tuple[str | None, dict[str, float]]:
    words = part.split()
    queue = None
    if words[0].endswith(":"):
        queue = words.pop(0)[:-1]
        if not _QUEUE.fullmatch(queue):
            _refuse(f"{queue!r} cannot be a queue's name")
        if not words:
            _refuse(f"nothing is said of queue {queue!r}")
    said: dict[str, float] = {}
    for text in words:
        word, equals, limit = text.partition("=")
        fits = [name for name, rule in RULES.items() if queue is None or rule.by_queue]
        if text == "off":
            said |= dict.fromkeys(fits, OFF)
            continue
        if word not in RULES or not equals:
            _refuse(f"{text!r} is no rule (there are {', '.join(fits)})")
        if word not in fits:
            _refuse(f"{word!r} is not about a queue, say it before the first `;`")
        said[word] = _limit(text, RULES[word], limit)
    return queue, said


def _limit(word: str, rule: Rule, text: str) -> float:
    if text == "off":
        return OFF
    value: float | None = None
    if rule.unit == "span" and (match := _SPAN.fullmatch(text)):
        value = float(int(match[1]) * UNITS[match[2] or "s"])
    elif rule.unit == "number" and _NUMBER.fullmatch(text):
        value = float(text)
    elif rule.unit == "percent" and (match := _PERCENT.fullmatch(text)):
        value = int(match[1]) / 100
    elif rule.unit == "switch" and text == "on":
        return 0.0
    if not value:
        _refuse(f"{word!r} says no limit; it is like {_EXAMPLES[rule.unit]}, or off")
    return value


def _refuse(what: str) -> NoReturn:
    raise SettingsError(
        f"alerts: {what}; it is like 'queue-age=10m snapshot=off; images: queue-age=30s'"
    )
