"""Place of each job after each transaction, from the audit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .evidence import Move

Spot = tuple[str, int]
"""Place of a job: its name, and the id of a claim or 0."""


@dataclass(frozen=True, slots=True)
class Step:
    """Changes of one transaction to one job. Places both entered and left in it are omitted."""

    tx: int
    at: float
    left: tuple[Move, ...]
    entered: tuple[Move, ...]
    spots: tuple[Spot, ...]
    """Places of the job afterwards; exactly one if all is correct."""


def place_of(move: Move) -> Spot:
    return (move.place, (move.claim or 0) if move.place == "claim" else 0)


def by_job(moves: Iterable[Move]) -> dict[int, list[Move]]:
    found: defaultdict[int, list[Move]] = defaultdict(list)
    for move in sorted(moves, key=lambda move: move.id):
        found[move.job].append(move)
    return found


def steps(moves: Sequence[Move]) -> Iterator[Step]:
    """Yield the steps of one job from its moves in order."""
    there: Counter[Spot] = Counter()
    for some in _transactions(moves):
        entered = {place_of(move): move for move in some if move.enters}
        left = {place_of(move): move for move in some if not move.enters}
        passed = entered.keys() & left.keys()
        for spot in entered.keys() - passed:
            there[spot] += 1
        for spot in left.keys() - passed:
            there[spot] -= 1
        yield Step(
            some[0].tx,
            some[-1].at,
            tuple(move for spot, move in left.items() if spot not in passed),
            tuple(move for spot, move in entered.items() if spot not in passed),
            tuple(sorted(spot for spot, count in there.items() for _ in range(abs(count)))),
        )


def _transactions(moves: Sequence[Move]) -> Iterator[list[Move]]:
    some: list[Move] = []
    for move in moves:
        if some and some[0].tx != move.tx:
            yield some
            some = []
        some.append(move)
    if some:
        yield some
