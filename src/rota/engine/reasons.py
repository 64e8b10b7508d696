"""From where a job is to why it does not run: one reason, or a few, each with what to do."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from rota.engine.takers import ready
from rota.engine.telling import WORKER, Around, Teller, nobody
from rota.model import codec
from rota.model.checkup import duration
from rota.model.replay import label
from rota.model.why import Kind, Reason
from rota.store.why import Place, Wait, Wanted

LATE = 5.0
"""Seconds that a worker's event loop may be late before it counts for something."""


def reasons(place: Place, around: Around, *, of: int) -> list[Reason]:
    """Why the job there does not run; `of`: what was asked about, which needs no name."""
    tell = Teller(place, around, "it" if place.job == of else f"job {place.job} ({place.task})")
    match place.place:
        case "ended":
            return [tell(code="ended", words=f"{tell.it} has ended: it {_came_to(place.outcome)}")]
        case "quarantined":
            return [_quarantined(tell)]
        case "running":
            return _held(tell)
        case "asleep":
            return _asleep(tell)
        case "ready":
            return ready(tell)
    return []


# In quarantine


def _quarantined(tell: Teller) -> Reason:
    place = tell.place
    changed = codec.read_error(place.error).type == "rota.errors.ReplayMismatch"
    why = "its code has changed under way" if changed else "too many workers were lost with it"
    first = "deploy code that fits what it came to, then " if changed else ""
    return tell(
        code="quarantined",
        words=f"{tell.it} is in quarantine, for {why}: nobody tries it again by himself",
        do=f"{first}`rota release {place.job}` tries it again, `rota cancel {place.job}` ends it",
        error=place.error,
        stuck=True,
    )


# Held by a worker


def _held(tell: Teller) -> list[Reason]:
    place = tell.place
    where = f"worker {place.worker}"
    if place.host is not None:
        where += f" on {place.host}, process {place.pid}"
    about: tuple[Kind, object] = ("worker", place.worker)
    found = []
    if place.unwanted is not None:
        found.append(
            tell(
                code="cancelling",
                words=f"{tell.it} is to stop, and its code on {where} has not yet: it is told with "
                "every beat, and sees ctx.cancelled",
                about=about,
                since=place.unwanted,
            )
        )
    if place.presence not in ("active", "draining"):
        return [*found, _orphaned(tell, where, about)]
    silent = place.silent or 0.0
    if place.until is not None and place.until <= tell.around.now:
        found.append(
            tell(
                code="hold_over",
                words=f"{where} has held {tell.it} for longer than the task's `hold` allows: any "
                "worker takes it back",
                about=about,
                since=place.until,
                **_needs_somebody(tell),
            )
        )
    elif silent >= tell.around.dead_after / 2:
        found.append(_silent(tell, where, about, silent))
    else:
        found.append(_running(tell, where, about))
    return found


def _orphaned(tell: Teller, where: str, about: tuple[Kind, object]) -> Reason:
    gone = {"dead": "is dead", "stopped": "has left"}.get(
        tell.place.presence or "", "is not known any more"
    )
    return tell(
        code="orphaned",
        words=f"{where} {gone} and still holds {tell.it}: a worker that is there takes it back with "
        "its next beat",
        about=about,
        **_needs_somebody(tell),
    )


def _silent(tell: Teller, where: str, about: tuple[Kind, object], silent: float) -> Reason:
    rest = tell.around.dead_after - silent
    soon = f"in about {rest:.0f} s" if rest >= 1 else "any moment"
    needs = _needs_somebody(tell)
    end = (
        "no other is there to take it back"
        if needs
        else f"{soon} the others take the worker to be dead, and the job goes back"
    )
    return tell(
        code="silent",
        words=f"{where} holds {tell.it} and has not been heard of for {duration(silent)}; {end}",
        about=about,
        **needs,
    )


def _needs_somebody(tell: Teller) -> dict[str, Any]:
    """What only a worker does that is heard of, where there is none but the one that holds it."""
    own = tell.place.presence in ("active", "draining")
    heard = own and (tell.place.silent or 0.0) < tell.around.dead_after / 2
    if tell.crowd.alive - heard > 0:
        return {}
    return {"do": f"no other worker is there; start one with {WORKER}", "stuck": True}


def _running(tell: Teller, where: str, about: tuple[Kind, object]) -> Reason:
    place = tell.place
    words = f"{tell.it} runs on {where}"
    if (place.lag or 0) > LATE:
        words += f", whose event loop has been blocked for {place.lag:.0f} s"
    together, capacity = place.together or 0, place.capacity or 0
    if together > max(capacity, place.running or 0):
        words = (
            f"{where} holds {tell.it} with {together - 1:,} others and runs {capacity:,} at a time: "
            "it may not have begun"
        )
    if place.alone is True:
        words += "; alone, for workers were lost with it"
    if place.done is not None:
        words += f"; {_progress(place.done, place.total)}"
    return tell(code="running", words=words, about=about, detail=place.note)


def _progress(done: float, total: float | None) -> str:
    return f"{done:,g} of {total:,g} done" if total else f"{done:,g} done"


def contended(lock: Wanted, job: int) -> Reason:
    """Somebody waits for this lock; whether it is the code of that job, nobody writes down."""
    what = f"permit {lock.permit} of {lock.name!r}" if lock.permit else f"lock {lock.name!r}"
    whose = (
        f"{lock.label} ({lock.host}, process {lock.pid})"
        if lock.label
        else f"{lock.host}, process {lock.pid}"
    )
    return Reason(
        code="lock",
        words=f"somebody waits for {what}, which {whose} holds: if its code asks for that, it waits",
        kind="lock",
        subject=lock.name,
        job=job,
        since=lock.since,
        until=lock.expires,
        sure=False,
    )


# Asleep


def _asleep(tell: Teller) -> list[Reason]:
    place, now = tell.place, tell.around.now
    due = place.wake is not None and place.wake <= now
    if due:
        if tell.crowd.wakers:
            return [
                tell(
                    code="due",
                    words=f"the time of {tell.it} has come: a worker wakes it",
                    until=place.wake,
                )
            ]
        who = (
            "all workers that are there are about to leave"
            if tell.crowd.alive
            else "no worker is there"
        )
        return [nobody(tell, f"the time of {tell.it} has come, and {who}: nobody wakes it")]
    waits = tell.around.waits.get(place.job, [])
    # Steps that a failed attempt left open are not what it sleeps for.
    own = [each for each in waits if _is_slept_for(each, place)]
    if own:
        return [_wait(tell, each) for each in own]
    if place.signals:
        return [_signal(tell, each, place.wake) for each in place.signals]
    if place.attempt is not None and place.attempt > 1:
        error = codec.read_error(place.error).type or "an error"
        return [
            tell(
                code="retry",
                words=f"attempt {place.attempt - 1} of {tell.it} failed with {error}; the next one waits",
                until=place.wake,
                error=place.error,
            )
        ]
    return [tell(code="delay", words=f"{tell.it} was started for later", until=place.wake)]


def _is_slept_for(wait: Wait, place: Place) -> bool:
    if wait.kind == "wait" and wait.name in (place.signals or ()):
        return True
    return wait.until is not None and wait.until == place.wake


def _signal(tell: Teller, name: str, until: datetime | None) -> Reason:
    ever = "" if until else ", however long that takes"
    return tell(
        code="signal",
        words=f"{tell.it} waits for signal {name!r}{ever}",
        about=("signal", name),
        until=until,
        do=f"`rota signal {tell.place.run} {shlex.quote(name)}` tells it",
        stuck=tell.place.wake is None,
    )


def _wait(tell: Teller, wait: Wait) -> Reason:
    if wait.kind == "wait":
        return _signal(tell, wait.name, wait.until)
    if wait.kind == "sleep":
        return tell(code="sleep", words=f"{tell.it} sleeps, as its code says", until=wait.until)
    error = codec.read_error(wait.error).type or "an error"
    times = "once" if wait.tries == 1 else f"{wait.tries} times"
    return tell(
        code="step_retry",
        words=f"{label(wait.kind, wait.name, wait.number)} of {tell.it} failed {times}, last with "
        f"{error}; its next try waits",
        until=wait.until,
        error=wait.error,
    )


def _came_to(outcome: str) -> str:
    return {"succeeded": "succeeded", "failed": "failed"}.get(outcome, f"was {outcome}")
