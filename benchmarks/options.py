"""Command line options of the benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.contender import DURABLE, PEERS
from benchmarks.sizes import FULL, QUICK, Sizes
from benchmarks.workloads import WORKLOADS

KNOWN = (*PEERS, *DURABLE)


@dataclass(frozen=True)
class Options:
    workloads: tuple[str, ...]
    peers: tuple[str, ...]
    sizes: Sizes
    dsn: str | None
    listing: bool
    quick: bool

    @property
    def full(self) -> bool:
        """True if everything is measured: all workloads, all peers, in their usual size."""
        return (self.workloads, self.peers, self.sizes) == (tuple(WORKLOADS), KNOWN, FULL)


def parse(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare Rota with its peers, as ratios."
    )
    add = parser.add_argument
    add("--only", metavar="A,B", help=f"workloads to run: {', '.join(WORKLOADS)}")
    add("--peers", metavar="A,B", help=f"peers to run: {', '.join(KNOWN)}; none: only Rota")
    add(
        "--pairs",
        type=int,
        metavar="N",
        help="number of interleaved rounds (default 5; with --quick 3)",
    )
    add("--history", type=int, metavar="N", help="number of finished jobs (default 5,000,000)")
    add("--dsn", metavar="URL", help="use this server; the role must be a superuser")
    add(
        "--quick",
        action="store_true",
        help="run with small numbers, as a test of the benchmark itself",
    )
    add("--list", action="store_true", help="list the workloads and exit")
    given = parser.parse_args(arguments)

    if given.dsn and not given.dsn.startswith(("postgresql://", "postgres://")):
        parser.error(
            "--dsn must be a URL, postgresql://…; the benchmark sets the database in its path"
        )
    sizes = QUICK if given.quick else FULL
    if given.pairs is not None:
        if given.pairs < 1:
            parser.error(f"--pairs must be 1 or more, not {given.pairs}")
        sizes = replace(sizes, pairs=given.pairs)
    if given.history is not None:
        sizes = replace(sizes, history=given.history)
    return Options(
        workloads=_chosen(parser, "--only", given.only, tuple(WORKLOADS)),
        peers=_chosen(parser, "--peers", given.peers, KNOWN),
        sizes=sizes,
        dsn=given.dsn,
        listing=given.list,
        quick=given.quick,
    )


def _chosen(
    parser: argparse.ArgumentParser, option: str, given: str | None, known: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the chosen names in the order of `known`."""
    if given is None:
        return known
    wanted = {name for name in given.split(",") if name and name != "none"}
    if unknown := wanted - set(known):
        parser.error(f"{option}: unknown {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return tuple(name for name in known if name in wanted)
