"""Cancel, or try again, whatever matches: counted first, then done portion by portion.

Runs are gone through from the latest to the earliest, each once, and none that was started after they were
counted. Each is done in a transaction of its own and written down as if it had been done alone; whoever is
stopped in between has done what he has, and goes on from there.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal

import msgspec

from rota.app.listing import Ask, find, of_kind
from rota.errors import ArgumentError, RotaError, RunNotFound
from rota.store import listing
from rota.store.listing import Matching

if TYPE_CHECKING:
    from rota.app.rota import Rota

Act = Literal["cancel", "retry"]

STATES: dict[Act, tuple[str, ...]] = {"cancel": listing.OPEN, "retry": listing.BAD}
"""In which a run can be for that."""

COUNTED = 10_000
"""More are not counted."""

COUNTED_WITHIN = 1.0
PORTION = 200
DONE_WITHIN = 2.0
"""Seconds after which a portion ends, however small it is."""

AT_ONCE = 4


class Count(msgspec.Struct, frozen=True):
    count: int
    exact: bool
    """There are no more; else there may be."""
    upto: int
    """The last id that had been given: what comes later was not counted, and is not touched."""


class Portion(msgspec.Struct, frozen=True):
    done: int
    spared: int
    """It was too late for these, or somebody else had done it."""
    next: int | None
    """Where the next portion begins; None: that was all."""


def narrowed(app: Rota, act: Act, matching: Matching) -> Matching:
    """Those of them it can be done to."""
    possible = STATES[act]
    wanted = matching.states or possible
    states = tuple(each for each in wanted if each in possible)
    if not states:
        word = "tried again" if act == "retry" else "cancelled"
        raise ArgumentError(
            f"what is {wanted[0]} cannot be {word}, only what is {', '.join(possible)}"
        )
    return of_kind(app, msgspec.structs.replace(matching, states=states))


async def count(app: Rota, ask: Ask, act: Act, matching: Matching) -> Count:
    """How many there are; of many, that there are many."""
    # First the bound, then the rest: what is started in between is not meant.
    [[crowd]] = await ask(listing.crowd(None))
    found = await find(
        ask,
        narrowed(app, act, matching),
        COUNTED,
        before=crowd.newest + 1,
        seconds=COUNTED_WITHIN,
    )
    return Count(len(found.spots), found.next is None, crowd.newest)


async def portion(
    app: Rota,
    ask: Ask,
    act: Act,
    matching: Matching,
    *,
    upto: int,
    before: int | None = None,
    by: str | None = None,
) -> Portion:
    """Some of them, the latest first: those up to the id that was named when they were counted, and before
    where the last portion ended."""
    began = time.monotonic()
    bound = min(upto + 1, upto + 1 if before is None else before)
    found = await find(ask, narrowed(app, act, matching), PORTION, before=bound)
    done = spared = 0
    runs = [each.id for each in found.spots]
    while runs:
        group, runs = runs[:AT_ONCE], runs[AT_ONCE:]
        acted = await asyncio.gather(*(_act(app, act, run, by) for run in group))
        done += sum(acted)
        spared += len(acted) - sum(acted)
        if runs and time.monotonic() - began > DONE_WITHIN:
            return Portion(done, spared, group[-1])
    return Portion(done, spared, found.next)


async def _act(app: Rota, act: Act, run: int, by: str | None) -> bool:
    """Whether it was done."""
    try:
        if act == "cancel":
            return await app.run(run).cancel(by=by) in ("cancelled", "requested")
        await app.run(run).retry(by=by)
    except RunNotFound:
        return False  # removed since
    except RotaError as error:
        if type(error) is not RotaError:
            raise
        return False  # it has been tried again, or succeeded, since
    return True
