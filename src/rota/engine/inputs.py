"""What a job is given besides its arguments: results of the jobs before it, and what it has come to itself.

A job names the jobs whose results are its arguments. For all jobs of a claim they are asked for together,
in one query, each once however many take it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.engine.clock import Clock
from rota.engine.hand import Hand
from rota.model.flow import is_optional
from rota.model.task import Definition
from rota.store import flows, links, steps, views
from rota.store.jobs import Claimed

_ids = msgspec.json.Decoder(dict[str, int])


async def fill(jobs: Sequence[Claimed], tasks: Mapping[str, Definition], hand: Hand) -> None:
    """Put the results that jobs take among their arguments."""
    taken = [(job, _ids.decode(job.inputs)) for job in jobs if job.inputs]
    if not taken:
        return
    wanted = sorted({id for _, ids in taken for id in ids.values()})
    [[found]] = await hand.send([[flows.inputs(wanted)]])
    known = dict(found)
    for job, ids in taken:
        task = tasks[job.task]
        parts = [
            f'"{word}":{known.get(id) or "null"}'
            for word, id in ids.items()
            # A job that has no result gives nothing: the parameter's default stands, or None.
            if id in known or not _is_left_out(task, word)
        ]
        own = job.args[1:-1].strip()
        job.args = "{" + ",".join([own, *parts] if own else parts) + "}"


async def recall(jobs: Sequence[Claimed], hand: Hand, clock: Clock) -> None:
    """Give jobs that have begun before what they came to."""
    begun = {job.job: job for job in jobs if job.begun}
    if not begun:
        return
    for job in begun.values():
        job.kept = []
    [[known, [now]]] = await hand.send([[steps.of(list(begun.values())), views.clock()]])
    clock.set(now)
    for each in known:
        kept = begun[each.job].kept
        assert kept is not None
        kept.append(each.kept)


async def trace_back(jobs: Sequence[Claimed], hand: Hand) -> None:
    """Give jobs that are traced where those were that they have waited for."""
    traced = {job.job: job for job in jobs if job.trace is not None and job.run is not None}
    if not traced:
        return
    [[found]] = await hand.send([[links.of(list(traced))]])
    for job, trace in found:
        traced[job].links = [*(traced[job].links or ()), trace]


def _is_left_out(task: Definition, word: str) -> bool:
    return is_optional(task, word) and (task.skip_if is None or is_optional(task.skip_if, word))
