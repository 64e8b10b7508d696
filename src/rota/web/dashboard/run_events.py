"""What happened to a run and when, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from rota.store.audit import Entry
from rota.store.chronicle import Happening
from rota.web.api.shapes import failure
from rota.web.dashboard.shown import span

SHOWN = 100
MOST = 2_000

ABOUT_RUNS = ("cancel run", "retry run", "signal run", "release run", "fork run")
"""What people do to runs; other things may go by a number, too."""


@dataclass(frozen=True, slots=True)
class Event:
    key: str
    at: datetime
    kind: str
    """job, step, signal or person: whose doing it was."""
    state: str
    """Of those that have an icon; or empty."""
    words: str
    job: int | None
    name: str
    worker: int | None
    detail: str
    until: datetime | None = None


def events(
    found: Sequence[Happening],
    deeds: Sequence[Entry],
    names: Mapping[int, str],
    *,
    shows: bool,
    limit: int = SHOWN,
) -> list[Event]:
    """The last first. `names`: of the jobs; what has none there is the run itself."""
    told = [_event(each, names, shows=shows) for each in found]
    told += [_deed(each) for each in deeds if each.action in ABOUT_RUNS]
    told.sort(key=lambda event: event.at, reverse=True)
    # Several can happen to the same thing in one moment.
    times: Counter[str] = Counter()
    for index, event in reversed(list(enumerate(told))):
        times[event.key] += 1
        told[index] = replace(event, key=f"{event.key} {times[event.key]}")
    return told[:limit]


def _event(each: Happening, names: Mapping[int, str], *, shows: bool) -> Event:
    kind, state, words = _words(each)
    dozes = each.what in ("sleep", "wait", "value", "version")
    detail = [] if each.took is None or dozes else [span(each.took)]
    if (said := failure(each.error, shown=shows)) is not None:
        detail.append(said.type)
        if isinstance(said.message, str):
            detail.append(said.message)
    name = names.get(each.job, "") if each.job is not None else ""
    key = f"{each.at.timestamp():.6f} {each.what} {each.job} {each.name or ''}"
    return Event(
        *(key, each.at, kind, state, words, each.job, name, each.worker),
        ": ".join(detail),
        each.until,
    )


def _words(each: Happening) -> tuple[str, str, str]:
    attempt = f"attempt {each.attempt}"
    match each.what:
        case "created":
            return "job", "", "created"
        case "began":
            return "job", "", f"{attempt} began"
        case "claimed":
            return "job", "running", f"{attempt} claimed by a worker"
        case "asleep":
            what = f"waits for {each.name}" if each.name else "sleeps"
            return "job", "asleep", what
        case "unwanted":
            return "job", "", "was asked to stop"
        case "quarantined":
            return "job", "quarantined", "put in quarantine"
        case "signal":
            return "signal", "", f"signal {each.name} was sent"
        case "sleep":
            return "step", "asleep", "sleeps"
        case "wait":
            ended = each.error is None
            return "step", "", f"wait for {each.name}" + ("" if ended else " ran out of time")
        case "step":
            bad = each.error is not None
            return "step", "failed" if bad else "succeeded", f"step {each.name}"
        case "value" | "version":
            return "step", "", f"{each.what} {each.name}"
        case "skipped":
            return "job", "skipped", "skipped"
    return "job", each.what, f"{attempt} {each.what}" if each.worker is not None else each.what


class _Detail(msgspec.Struct):
    task: str = ""
    step: str = ""
    signal: str = ""


def _deed(entry: Entry) -> Event:
    said = msgspec.json.decode(entry.detail, type=_Detail)
    more = next((each for each in (said.task, said.step, said.signal) if each), "")
    words = f"{entry.action}{f' {more}' if more else ''}, by {entry.who}"
    return Event(f"deed {entry.id}", entry.at, "person", "", words, None, "", None, "")
