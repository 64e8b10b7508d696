"""Graphs for the tests of drawings."""

from __future__ import annotations

import random

from hypothesis import strategies as some

from rota.model.graph import Graph

DIAMOND = Graph({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})


@some.composite
def graphs(draw: some.DrawFn, most: int = 14) -> Graph:
    """Draw a graph of up to `most` jobs, with separate parts, long edges and single jobs."""
    size = draw(some.integers(0, most))
    parents: dict[str, list[str]] = {}
    for number in range(size):
        places = draw(some.lists(some.integers(0, number), unique=True, max_size=4))
        parents[f"j{number}"] = [f"j{place}" for place in places if place < number]
    return Graph(parents)


def chain(length: int) -> Graph:
    return Graph({f"j{n}": [f"j{n - 1}"] if n else [] for n in range(length)})


def fan(width: int) -> Graph:
    """Return a graph of one job, `width` successors of it, and one successor of all of these."""
    parts = {f"part{n}": ["split"] for n in range(width)}
    return Graph({"split": [], **parts, "merge": list(parts)})


def crossbar(layers: int, width: int) -> Graph:
    """Return a graph in which every job of a layer waits for every job of the previous layer."""
    return Graph(
        {
            f"j{layer}.{n}": [f"j{layer - 1}.{m}" for m in range(width)] if layer else []
            for layer in range(layers)
            for n in range(width)
        }
    )


def scattered(size: int, seed: int = 1) -> Graph:
    """Return a graph in which each job waits for up to three random earlier jobs: mostly long edges."""
    chance = random.Random(seed)
    return Graph(
        {
            f"j{n}": sorted({f"j{chance.randrange(n)}" for _ in range(3)}) if n else []
            for n in range(size)
        }
    )
