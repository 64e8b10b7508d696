"""Why a job that is ready is not taken: who would, and what keeps each of them."""

from __future__ import annotations

import shlex
from collections import Counter

from rota.engine.telling import WORKER, Teller, count, nobody
from rota.model.why import Kind, Reason
from rota.store.why import Crowd

MOST = 1000
"""Jobs before one in its queue that are counted."""


def ready(tell: Teller) -> list[Reason]:
    place, crowd = tell.place, tell.crowd
    if place.paused is not None:
        return [_paused(tell)]
    if not crowd.there:
        return [nobody(tell, f"{tell.it} is ready, and no worker is there")]
    if not crowd.serve:
        queues = ", ".join(sorted(crowd.queues)[:5]) or "none"
        return [
            tell(
                code="queue_unserved",
                words=f"{tell.it} is ready, and no worker serves queue {place.queue!r}; served: {queues}",
                about=("queue", place.queue),
                do=f"`rota worker MODULE:APP -q {shlex.quote(place.queue)}`",
                stuck=True,
            )
        ]
    if not crowd.kinds:
        return [_unknown(tell)]
    if not crowd.takers:
        return [
            tell(
                code="draining",
                words=f"{tell.it} is ready, and all that would take it are about to leave: "
                f"{_workers(crowd)}",
                about=("task", place.task),
                do=f"start another with {WORKER}",
                stuck=True,
            )
        ]
    if "free" not in crowd.kinds:
        return [_busy(tell)]
    if place.lost is not None:
        return [_suspect(tell)]
    return [_turn(tell)]


def _paused(tell: Teller) -> Reason:
    place = tell.place
    said = ": ".join(each for each in (place.who, place.why) if each)
    return tell(
        code="paused",
        words=f"{tell.it} is ready, and queue {place.queue!r} is paused: nobody takes from it",
        about=("queue", place.queue),
        since=place.paused,
        do=f"`rota queues resume {shlex.quote(place.queue)}`",
        detail=said or None,
        stuck=True,
    )


def _unknown(tell: Teller) -> Reason:
    place, crowd = tell.place, tell.crowd
    versions = ", ".join(each for each in crowd.versions if each)
    running = f", which run version {versions}" if versions else ""
    elsewhere = (
        f"; {count(crowd.know, 'worker knows', 'workers know')} it, for other queues"
        if crowd.know
        else ""
    )
    return tell(
        code="task_unknown",
        words=f"{tell.it} is ready, and of the {count(crowd.serve, 'worker', 'workers')} that serve queue "
        f"{place.queue!r}{running}, none knows task {place.task!r}{elsewhere}",
        about=("task", place.task),
        do=f"`rota worker MODULE:APP -q {shlex.quote(place.queue)}` with an app that has it; "
        "`rota check-deploy MODULE:APP` says what an app does not have",
        stuck=True,
    )


def _busy(tell: Teller) -> Reason:
    """Every worker that would take it is kept from it."""
    crowd = tell.crowd
    kinds = Counter(each for each in crowd.kinds if each != "draining")
    told = {
        "full": f"full, with {count(crowd.running, 'job', 'jobs')} running",
        "silent": "silent, not heard of for a while",
        "late": "blocked: code that waits for nobody keeps its event loop",
        "lone": "kept for a job that has to run alone",
    }
    said = "; ".join(f"{many:,} {told[kind]}" for kind, many in sorted(kinds.items()))
    code = "full" if "full" in kinds else "late" if "late" in kinds else next(iter(kinds))
    helps = {
        "full": f"start more with {WORKER}, or with a larger -c",
        "late": 'isolation="process" or a plain `def` keeps such code off the event loop',
        "silent": f"look what has become of it, or start another with {WORKER}",
    }
    return tell(
        code="suspect" if code == "lone" else code,
        words=f"{tell.it} is ready; of the {count(crowd.takers, 'worker', 'workers')} that would take "
        f"it: {said} ({_workers(crowd)})",
        about=("queue", tell.place.queue),
        do=helps.get(code),
        stuck=set(kinds) == {"silent"},
    )


def _suspect(tell: Teller) -> Reason:
    mild = tell.place.lost in (-1, -3)
    how = (
        "so it is claimed by itself"
        if mild
        else "more than once, so it is claimed by itself and runs alone"
    )
    return tell(
        code="suspect",
        words=f"{tell.it} is ready and was lost with a worker, {how}: "
        f"{count(tell.crowd.takers, 'worker', 'workers')} would take it",
        about=("queue", tell.place.queue),
    )


def _turn(tell: Teller) -> Reason:
    turn = tell.around.turns.get(tell.place.job)
    about: tuple[Kind, object] = ("queue", tell.place.queue)
    takers = count(tell.crowd.takers, "worker", "workers")
    if turn is None:
        return tell(
            code="behind", words=f"{tell.it} is ready, and {takers} would take it", about=about
        )
    if turn.seq is None:
        many = "others"
    elif turn.ahead >= MOST:
        many = f"{MOST:,} others or more"
    elif turn.ahead:
        many = count(turn.ahead, "other", "others")
    else:
        return tell(
            code="next",
            words=f"{tell.it} is the next of its queue; {takers} would take it",
            about=about,
        )
    return tell(
        code="behind",
        words=f"{tell.it} is ready behind {many} of queue {tell.place.queue!r}; {takers} would take it",
        about=about,
    )


def _workers(crowd: Crowd) -> str:
    more = len(crowd.kinds) - len(crowd.whom)
    named = ", ".join(str(each) for each in crowd.whom) + (f" and {more:,} more" if more else "")
    return f"worker {named}" if len(crowd.kinds) == 1 else f"workers {named}"
