"""The graph of a run: laid out once for each shape there is, coloured anew for each look.

A run of two thousand jobs is drawn as a few hundred boxes at most, see `rota.drawing.crowd`; whoever wants
to see the jobs that one of them stands for opens it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rota.drawing.board import Card, Share, board, edges, place
from rota.drawing.crowd import Crowd, crowd
from rota.drawing.label import STATES, Edge
from rota.drawing.layout import Layout
from rota.model.graph import Graph
from rota.store.views import FlowDetail, JobLine, RunDetail
from rota.web.dashboard.run_job import share
from rota.web.dashboard.shown import number, span

SHAPES = 128
"""So many are remembered."""
CALLER = "caller"
"""The job whose calls a run is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a graph looks like, whatever becomes of its jobs. They are numbers here, in the order of the
    run."""

    crowd: Crowd
    layout: Layout
    between: str
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Picture:
    shape: Shape
    cards: Mapping[str, Card]
    members: Mapping[str, list[JobLine]]
    """The jobs behind each box."""
    opened: tuple[str, ...]

    def svg(self, title: str, chosen: str) -> str:
        made = self.shape
        return board(made.layout, self.cards, between=made.between, title=title, chosen=chosen)

    def colours(self) -> str:
        """What may have changed since it was drawn, for a script."""
        return json.dumps(
            [
                [
                    key,
                    card.state,
                    card.remark,
                    card.hint,
                    [[s, round(n, 4)] for s, n in card.shares],
                ]
                for key, card in self.cards.items()
            ],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    def key_of(self, job: int | None) -> str:
        """The box that a job is drawn in, by itself or with others."""
        for key, jobs in self.members.items():
            if any(each.job == job for each in jobs):
                return key
        return ""


def picture(
    run: FlowDetail,
    jobs: Sequence[JobLine],
    caller: RunDetail | None = None,
    opened: Sequence[str] = (),
) -> Picture:
    names = [name_of(job, run) for job in jobs]
    kept = f"open={'.'.join(opened)}&" if opened else ""
    found = _shape(run, jobs, names, tuple(opened))
    by_number = {str(place): job for place, job in enumerate(jobs)}
    members: dict[str, list[JobLine]] = {}
    cards: dict[str, Card] = {}
    for key in found.crowd.graph.order:
        if key == CALLER:
            members[key] = []
            cards[key] = _caller_card(run, caller)
        elif key in found.crowd.folds:
            members[key] = [by_number[each] for each in found.crowd.folds[key]]
            cards[key] = _crowd_card(key, found.names[key], members[key], kept)
        else:
            members[key] = [by_number[key]]
            cards[key] = _card(by_number[key], found.names[key], kept)
    return Picture(found, cards, members, tuple(opened))


def name_of(job: JobLine, run: FlowDetail) -> str:
    return job.task.removeprefix(f"{run.flow}.") if run.flow else job.task


# Shapes


_known: OrderedDict[bytes, Shape] = OrderedDict()
_of_runs: OrderedDict[object, Shape] = OrderedDict()
"""The graph of a run never changes; many runs have the same."""


def _shape(
    run: FlowDetail, jobs: Sequence[JobLine], names: Sequence[str], opened: tuple[str, ...]
) -> Shape:
    edges_of = tuple((job.job, tuple(job.children), tuple(job.takes)) for job in jobs)
    this = (run.flow, tuple(names), edges_of, opened)
    found = _of_runs.get(this)
    if found is None:
        number_of = {job.job: place for place, job in enumerate(jobs)}
        below = [[number_of[child] for child in job.children if child in number_of] for job in jobs]
        takes = [[number_of[each] for each in job.takes if each in number_of] for job in jobs]
        described = repr((bool(run.flow), list(names), below, takes, opened)).encode()
        key = hashlib.blake2b(described, digest_size=16).digest()
        found = _known.get(key) or _laid_out(run, names, below, takes, opened)
        _keep(_known, key, found)
    _keep(_of_runs, this, found)
    return found


Key = TypeVar("Key")


def _keep(known: OrderedDict[Key, Shape], key: Key, shape: Shape) -> None:
    known[key] = shape
    known.move_to_end(key)
    while len(known) > SHAPES:
        known.popitem(last=False)


def _laid_out(
    run: FlowDetail,
    names: Sequence[str],
    below: Sequence[Sequence[int]],
    takes: Sequence[Sequence[int]],
    opened: tuple[str, ...],
) -> Shape:
    parents: dict[str, list[str]] = {str(place): [] for place in range(len(names))}
    after: set[Edge] = set()
    kinds = {str(place): _DIGITS.sub("*", name) for place, name in enumerate(names)}
    if run.flow:
        for parent, children in enumerate(below):
            for child in children:
                parents[str(child)].append(str(parent))
                if parent not in takes[child]:
                    after.add((str(parent), str(child)))
    else:
        # Calls are the caller's; which of them waits for which is only a matter of how many run at a time.
        parents = {CALLER: [], **{key: [CALLER] for key in parents}}
        kinds[CALLER] = CALLER
    folded = crowd(Graph(parents), kinds, after=after, opened=opened)
    shown: dict[str, str] = {}
    for key in folded.graph.order:
        if key in folded.folds:
            shown[key] = _crowd_name([names[int(each)] for each in folded.folds[key]])
        else:  # the caller's name is not known here, but there is room for it
            shown[key] = "x" * 24 if key == CALLER else names[int(key)]
    made = place(folded.graph, shown)
    return Shape(folded, made, edges(made, folded.after), shown)


_DIGITS = re.compile("[0-9]+")


def _crowd_name(names: Sequence[str]) -> str:
    """Of many: theirs if it is one, but for numbers in it."""
    for found in (names, [_DIGITS.sub("*", each) for each in names]):
        different = list(dict.fromkeys(found))
        if len(different) == 1:
            return f"{different[0]} × {number(len(names))}"
    return f"{different[0]} and others × {number(len(names))}"


# What is said of each box


def _card(job: JobLine, name: str, kept: str) -> Card:
    words = [job.state]
    if job.attempt > 1 and job.state not in ("skipped", "waiting"):
        words.append(f"attempt {job.attempt}")
    elif job.state in ("succeeded", "failed") and job.took is not None:
        words.append(span(job.took))
    if job.state == "asleep" and job.awaits:
        words.append(f"for {', '.join(job.awaits)}")
    shares: list[Share] = []
    part = None if job.done is None else share(job.done, job.total)
    if job.state in ("running", "asleep") and part is not None:
        shares = [("running", part)]
        words.append(f"{part:.0%}")
    href = f"?{kept}job={job.job}"
    return Card(name, job.state, " · ".join(words), f"job {job.job}", href, 1, shares)


def _crowd_card(key: str, name: str, jobs: Sequence[JobLine], kept: str) -> Card:
    counted = Counter(job.state for job in jobs)
    order = [state for state in STATES if counted[state]]
    words = ", ".join(f"{number(counted[state])} {state}" for state in order)
    shares = [(state, counted[state] / len(jobs)) for state in order]
    state = order[0] if order else ""
    short = words if len(order) <= 2 else f"{number(counted[state])} {state}, …"
    return Card(name, state, short, words, f"?{kept}group={key}", len(jobs), shares)


def _caller_card(run: FlowDetail, caller: RunDetail | None) -> Card:
    if caller is None:
        return Card(f"job {run.parent}", remark="which is gone")
    return Card(caller.task, caller.state, f"{caller.state} · makes calls", "", str(run.parent))


def counts(jobs: Sequence[Any]) -> list[tuple[str, int]]:
    """How many are in which state, those somebody should look at first."""
    counted = Counter(job.state for job in jobs)
    return [(state, counted[state]) for state in STATES if counted[state]]
