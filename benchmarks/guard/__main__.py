"""Compare this tree with BASE. Exit with 1 if a count rose, or CPU time by more than 5 %."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from benchmarks.guard import server, variants
from benchmarks.guard.server import Server
from benchmarks.guard.variants import UnknownCommit, Variant
from benchmarks.guard.verdict import MEASURES, Row, compare, table
from benchmarks.guard.workloads import WORKLOADS, Cost, measure
from benchmarks.process import ChildFailed
from benchmarks.stage import STEP, Wrong
from rota.errors import LocalPostgresError

COUNTED_PAIRS = 5
PAIRS = 15

CPU = [each for each in MEASURES if each.is_cpu]
WIRE = [each for each in MEASURES if each.field in ("statements", "round_trips")]
WRITTEN = [each for each in MEASURES if each.field in ("row_versions", "wal_bytes")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument(
        "--only", default=",".join(WORKLOADS), help="workloads to run (default: %(default)s)"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=PAIRS,
        help="number of interleaved pairs (default: %(default)s)",
    )
    given = parser.parse_args()
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(WORKLOADS):
        parser.error(f"--only: unknown {', '.join(sorted(unknown))}; known: {', '.join(WORKLOADS)}")
    console = Console()
    console.width = max(console.width, 100)
    rows: list[Row] = []
    with variants.exported(given.base) as pair, server.started() as postgres:
        console.print(f"base {pair[0].commit}, head {pair[1].commit}")
        for each in pair:
            _migrate(postgres, each)
        for workload in chosen:
            counted = _pairs(postgres, pair, workload, min(COUNTED_PAIRS, given.pairs), wired=True)
            rows += [compare(workload, *counted, each) for each in WIRE]
            timed = _pairs(postgres, pair, workload, given.pairs, wired=False)
            rows += [compare(workload, *timed, each) for each in (*WRITTEN, *CPU)]
            console.print(f"{workload}: {len(timed[0])} pairs")
    console.print(table(rows))
    rose = [f"{row.workload}: {row.measure.title}" for row in rows if row.rose]
    if rose:
        console.print(f"rose: {'; '.join(rose)}", style="red")
    return int(bool(rose))


def _migrate(postgres: Server, variant: Variant) -> None:
    """Create the template database that each run copies."""
    dsn = postgres.cluster.create(_template(variant))
    with variant.child(dsn) as child:
        child.ask("migrate", STEP)


def _template(variant: Variant) -> str:
    return f"template_{variant.name}"


def _pairs(
    postgres: Server, pair: Sequence[Variant], workload: str, count: int, *, wired: bool
) -> tuple[list[Cost], list[Cost]]:
    """Run both variants alternately; the one that runs first changes with each pair."""
    costs: dict[str, list[Cost]] = {"base": [], "head": []}
    for number in range(count):
        for variant in pair if number % 2 else reversed(pair):
            cost = measure(postgres, variant, workload, _template(variant), wired=wired)
            costs[variant.name].append(cost)
    return costs["base"], costs["head"]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (UnknownCommit, LocalPostgresError, ChildFailed, Wrong) as error:
        sys.exit(f"bench-guard: {error}")
