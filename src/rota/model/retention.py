"""Retention of finished runs, by outcome and by queue.

    7d                          every run for a week
    30d succeeded=7d            successes for a week, the rest for thirty days
    30d; images: 1d failed=7d   … but in queue images one day, and failures for a week
    30d; audit: forever         … but in queue audit without limit

Parts are separated by `;`. A part without a queue name applies to every queue. An outcome that a queue's
part omits takes its value from that general part, or else from `DEFAULT_RETENTION`. The time starts at the
end of a run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from rota.model.queue_settings import QUEUE_NAME, UNIT_SECONDS, QueueSetting

OUTCOMES = ("succeeded", "failed", "cancelled", "expired", "skipped")

DEFAULT_RETENTION = "30d succeeded=7d"

FOREVER = math.inf

MAX_SECONDS = 36500 * UNIT_SECONDS["d"]
"""A hundred years. Longer periods must be written as forever, because intervals are bounded."""

_DURATION = re.compile(r"(\d{1,18})([a-z]*)", re.ASCII)

_SETTING = QueueSetting(
    "retention cannot be read",
    "duration",
    "every queue",
    "30d succeeded=7d; images: 1d failed=7d; audit: forever",
)

_Ages = Mapping[str, float]


class Retention(msgspec.Struct, frozen=True):
    """Seconds for which a finished run is kept, by outcome. A queue may have its own values."""

    default: _Ages
    queues: Mapping[str, _Ages]

    @classmethod
    def parse(cls, text: str) -> Retention:
        if not isinstance(text, str):
            _SETTING.refuse(f"it is {text!r}, not text")
        general, queues = _SETTING.split(text)
        if general is None and not queues:
            _SETTING.refuse("it is empty")
        base = _DEFAULT_AGES | _parse_part(general or "")
        return cls(base, {queue: base | _parse_part(part) for queue, part in queues.items()})

    @property
    def min_age(self) -> float:
        """Shortest retention of all. Younger runs need not be checked."""
        return min(age for ages in (self.default, *self.queues.values()) for age in ages.values())

    def __str__(self) -> str:
        """Return the complete rules in the form that `parse` reads."""
        named = [f"{queue}: {_format_ages(ages)}" for queue, ages in self.queues.items()]
        return "; ".join([_format_ages(self.default), *named])


def _parse_part(part: str) -> dict[str, float]:
    """Return the values of a part by outcome."""
    ages: dict[str, float] = {}
    for token in part.split():
        outcome, equals, duration = token.rpartition("=")
        if equals and outcome not in OUTCOMES:
            _SETTING.refuse(
                f"{outcome!r} in {token!r} is not an outcome (there are {', '.join(OUTCOMES)})"
            )
        if outcome in ages:
            _SETTING.refuse(f"{token!r} sets {outcome or 'the default'} a second time in {part!r}")
        ages[outcome] = _parse_duration(token, duration)
    default = ages.pop("", None)
    return ages if default is None else {**dict.fromkeys(OUTCOMES, default), **ages}


def _parse_duration(text: str, duration: str) -> float:
    if duration == "forever":
        return FOREVER
    match = _DURATION.fullmatch(duration)
    if match is None:
        queue, colon, remainder = text.rpartition(":")
        if colon and remainder and QUEUE_NAME.fullmatch(queue):
            _SETTING.refuse(f"{text!r} wants a space after the queue's name, {queue}: {remainder}")
        _SETTING.refuse(f"{text!r} is not a time (a whole number with a unit, or forever)")
    number, unit = match.groups()
    if not unit:
        _SETTING.refuse(f"{text!r} has no unit ({number}d would be days)")
    if unit not in UNIT_SECONDS:
        _SETTING.refuse(f"{text!r} has an unknown unit (there are {', '.join(UNIT_SECONDS)})")
    seconds = int(number) * UNIT_SECONDS[unit]
    if seconds > MAX_SECONDS:
        _SETTING.refuse(f"{text!r} is more than a hundred years (write forever)")
    return float(seconds)


def _format_ages(ages: _Ages) -> str:
    return " ".join(f"{outcome}={_format_duration(ages[outcome])}" for outcome in OUTCOMES)


def _format_duration(seconds: float) -> str:
    if seconds == FOREVER:
        return "forever"
    unit = next(unit for unit, size in UNIT_SECONDS.items() if seconds % size == 0)
    return f"{seconds / UNIT_SECONDS[unit]:.0f}{unit}"


_DEFAULT_AGES = _parse_part(DEFAULT_RETENTION)
