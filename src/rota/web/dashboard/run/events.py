"""Events of a run as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from rota.operations.documents import error_detail
from rota.store.audit import AuditRow
from rota.store.read.run_history import RunEventRow
from rota.web.dashboard.template_helpers import format_duration

DEFAULT_EVENTS = 100
MAX_EVENTS = 2_000

RUN_ACTIONS = ("cancel run", "retry run", "signal run", "release run", "fork run")
"""Actions of operators on runs. The subject of another action may be the same number."""


@dataclass(frozen=True, slots=True)
class RunEventView:
    key: str
    at: datetime
    kind: str
    """Source of the event: job, step, signal or person."""
    state: str
    """A state that has an icon, or ""."""
    text: str
    job: int | None
    name: str
    worker: int | None
    detail: str
    until: datetime | None = None


def event_views(
    event_rows: Sequence[RunEventRow],
    audit_entries: Sequence[AuditRow],
    names: Mapping[int, str],
    *,
    may_see_payloads: bool,
    limit: int = DEFAULT_EVENTS,
) -> list[RunEventView]:
    """Return the events, the latest first. `names` maps jobs to their names; an id without a name is the
    run itself.
    """
    views = [_event_view(each, names, may_see_payloads=may_see_payloads) for each in event_rows]
    views += [_audit_event(each) for each in audit_entries if each.action in RUN_ACTIONS]
    views.sort(key=lambda event: event.at, reverse=True)
    # Keys must be unique: several events of one job can have the same time.
    times: Counter[str] = Counter()
    for index, event in reversed(list(enumerate(views))):
        times[event.key] += 1
        views[index] = replace(event, key=f"{event.key} {times[event.key]}")
    return views[:limit]


def _event_view(
    each: RunEventRow, names: Mapping[int, str], *, may_see_payloads: bool
) -> RunEventView:
    kind, state, text = _describe(each)
    no_duration = each.kind in ("sleep", "wait", "value", "version")
    detail = [] if each.seconds is None or no_duration else [format_duration(each.seconds)]
    if (error := error_detail(each.error, visible=may_see_payloads)) is not None:
        detail.append(error.type)
        if isinstance(error.message, str):
            detail.append(error.message)
    name = names.get(each.job, "") if each.job is not None else ""
    key = f"{each.at.timestamp():.6f} {each.kind} {each.job} {each.name or ''}"
    return RunEventView(
        *(key, each.at, kind, state, text, each.job, name, each.worker),
        ": ".join(detail),
        each.until,
    )


_DESCRIPTIONS = {
    "created": ("job", "", "created"),
    "began": ("job", "", "attempt {attempt} began"),
    "claimed": ("job", "running", "attempt {attempt} claimed by a worker"),
    "cancel_requested": ("job", "", "was asked to stop"),
    "quarantined": ("job", "quarantined", "put in quarantine"),
    "signal": ("signal", "", "signal {name} was sent"),
    "sleep": ("step", "sleeping", "sleeps"),
    "value": ("step", "", "value {name}"),
    "version": ("step", "", "version {name}"),
    "skipped": ("job", "skipped", "skipped"),
}
"""Subject, state and text of an event, by its kind."""


def _describe(each: RunEventRow) -> tuple[str, str, str]:
    if each.kind in _DESCRIPTIONS:
        subject, state, text = _DESCRIPTIONS[each.kind]
        return subject, state, text.format(attempt=each.attempt, name=each.name)
    match each.kind:
        case "sleeping":
            return "job", "sleeping", f"waits for {each.name}" if each.name else "sleeps"
        case "wait":
            ended = each.error is None
            return "step", "", f"wait for {each.name}" + ("" if ended else " ran out of time")
        case "step":
            return "step", "succeeded" if each.error is None else "failed", f"step {each.name}"
    attempt = f"attempt {each.attempt} " if each.worker is not None else ""
    return "job", each.kind, f"{attempt}{each.kind}"


class _EventDetail(msgspec.Struct):
    task: str = ""
    step: str = ""
    signal: str = ""


def _audit_event(entry: AuditRow) -> RunEventView:
    details = msgspec.json.decode(entry.detail, type=_EventDetail)
    more = next((each for each in (details.task, details.step, details.signal) if each), "")
    text = f"{entry.action}{f' {more}' if more else ''}, by {entry.operator}"
    return RunEventView(f"deed {entry.id}", entry.at, "person", "", text, None, "", None, "")
