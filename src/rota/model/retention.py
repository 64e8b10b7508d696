"""How long finished runs are kept, by outcome and by queue.

    7d                          everything for a week
    30d succeeded=7d            … successes for a week, the rest for thirty days
    30d; images: 1d failed=7d   … and what was done in queue images for a day, failures for a week
    30d; audit: forever         … and what was done in queue audit for good

Parts are separated by `;`. One without a queue's name is about every queue; what a queue's own part does
not say is said by that one, and what neither says by `DEFAULT`. Times count from a run's end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from rota.errors import SettingsError

OUTCOMES = ("succeeded", "failed", "cancelled", "expired", "skipped")

DEFAULT = "30d succeeded=7d"

FOREVER = math.inf

UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60, "s": 1}
"""From the largest to the smallest, in seconds."""

LONGEST = 36500 * UNITS["d"]
"""Beyond a hundred years, say forever: intervals end somewhere."""

_SPAN = re.compile(r"(\d{1,18})([a-z]*)", re.ASCII)
_QUEUE = re.compile(r"[A-Za-z_][\w.:/-]{0,199}")

_Ages = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Keep:
    """Seconds for which a finished run is kept, for each outcome; a queue may have its own."""

    default: _Ages
    queues: Mapping[str, _Ages]

    @classmethod
    def parse(cls, text: str) -> Keep:
        if not isinstance(text, str):
            _refuse(f"it is {text!r}, not text")
        default: dict[str, float] | None = None
        queues: dict[str, dict[str, float]] = {}
        for part in filter(None, map(str.strip, text.split(";"))):
            queue, ages = _part(part)
            if queue is not None and queue in queues:
                _refuse(f"queue {queue!r} has two parts, make them one")
            if queue is None and default is not None:
                _refuse(
                    f"{part!r} is a second part about every queue, put a queue's name before it"
                )
            if queue is None:
                default = ages
            else:
                queues[queue] = ages
        if default is None and not queues:
            _refuse("it says nothing")
        ground = _BUILT_IN | (default or {})
        return cls(ground, {queue: ground | ages for queue, ages in queues.items()})

    def age(self, queue: str, outcome: str) -> float:
        """For how many seconds after its end."""
        return self.queues.get(queue, self.default)[outcome]

    @property
    def shortest(self) -> float:
        """What is younger than this goes under no rule."""
        return min(age for ages in (self.default, *self.queues.values()) for age in ages.values())

    def __str__(self) -> str:
        """In the form it is read from, with nothing left to be understood."""
        named = [f"{queue}: {_written(ages)}" for queue, ages in self.queues.items()]
        return "; ".join([_written(self.default), *named])


def _part(part: str) -> tuple[str | None, dict[str, float]]:
    """A part's queue, if it names one, and what it says of outcomes."""
    words = part.split()
    queue = None
    if words[0].endswith(":"):
        queue = words.pop(0)[:-1]
        if not _QUEUE.fullmatch(queue):
            _refuse(f"{queue!r} cannot be a queue's name")
        if not words:
            _refuse(f"nothing is said of queue {queue!r}")
    said: dict[str, float] = {}
    for word in words:
        outcome, equals, span = word.rpartition("=")
        if equals and outcome not in OUTCOMES:
            _refuse(f"{outcome!r} in {word!r} is not an outcome (there are {', '.join(OUTCOMES)})")
        if outcome in said:
            _refuse(f"{word!r} says a second time what {part!r} has said already")
        said[outcome] = _seconds(word, span)
    everything = said.pop("", None)
    if everything is None:
        return queue, said
    return queue, {**dict.fromkeys(OUTCOMES, everything), **said}


def _seconds(word: str, span: str) -> float:
    if span == "forever":
        return FOREVER
    match = _SPAN.fullmatch(span)
    if match is None:
        queue, colon, rest = word.rpartition(":")
        if colon and rest and _QUEUE.fullmatch(queue):
            _refuse(f"{word!r} wants a space after the queue's name, {queue}: {rest}")
        _refuse(f"{word!r} is not a time (a whole number with a unit, or forever)")
    number, unit = match.groups()
    if not unit:
        _refuse(f"{word!r} has no unit ({number}d would be days)")
    if unit not in UNITS:
        _refuse(f"{word!r} has an unknown unit (there are {', '.join(UNITS)})")
    seconds = int(number) * UNITS[unit]
    if seconds > LONGEST:
        _refuse(f"{word!r} is more than a hundred years (say forever)")
    return float(seconds)


def _written(ages: _Ages) -> str:
    return " ".join(f"{outcome}={_span(ages[outcome])}" for outcome in OUTCOMES)


def _span(seconds: float) -> str:
    if seconds == FOREVER:
        return "forever"
    unit = next(unit for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds / UNITS[unit]:.0f}{unit}"


def _refuse(why: str) -> NoReturn:
    raise SettingsError(
        f"keep cannot be read: {why}; write it as in "
        "'30d succeeded=7d; images: 1d failed=7d; audit: forever'"
    )


_BUILT_IN = _part(DEFAULT)[1]
