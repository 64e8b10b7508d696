"""`make bench`: install the peers, start one server, run the workloads and print the findings.

Exits with 1 if a workload could not be measured. A missed bar is a finding, not a failure.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

from rich.console import Console

from benchmarks import cluster, contender, machine, peers
from benchmarks.contender import Contender
from benchmarks.findings import Findings
from benchmarks.options import Options, parse
from benchmarks.peers import PeerMissing
from benchmarks.places import HERE, PEERS, ROOT
from benchmarks.process import ChildFailed
from benchmarks.report import Report
from benchmarks.stage import Stage, Wrong
from benchmarks.workloads import WORKLOADS
from rota.errors import LocalPostgresError


def main() -> int:
    options = parse()
    console = Console()
    console.width = max(console.width, 120)  # one line per budget, also without a terminal
    if options.listing:
        for name, workload in WORKLOADS.items():
            promise = (sys.modules[workload.__module__].__doc__ or "").partition("\n")[0]
            console.print(f"  {name:10} {promise}", highlight=False)
        return 0

    remarks = (
        ["Small numbers (--quick): a test of the benchmark, not a measurement."]
        if options.quick
        else []
    )
    competitors = _peers(options, console, remarks)
    failed = False
    findings: list[Findings] = []
    with cluster.given(options.dsn) if options.dsn else cluster.private() as server:
        stage = Stage(
            server,
            contender.rota(),
            [each for each in competitors if each.name in contender.PEERS],
            [each for each in competitors if each.name in contender.DURABLE],
            options.sizes,
            lambda line: console.print(f"  {line}"),
        )
        facts = machine.describe(server)
        for name in options.workloads:
            console.print(f"[bold]{name}[/]")
            try:
                findings.append(WORKLOADS[name](stage))
            except (ChildFailed, Wrong) as error:
                failed = True
                remarks.append(f"{name} was not measured: {error}")
                console.print(remarks[-1], style="red", markup=False)

    report = Report(facts, _versions(), findings, remarks)
    report.show(console)
    page = report.write(full=options.full and not failed)
    console.print(f"written to {page.relative_to(ROOT)}")
    return int(failed)


def _peers(options: Options, console: Console, remarks: list[str]) -> list[Contender]:
    found = []
    for name in options.peers:
        try:
            found.append(contender.peer(name))
        except PeerMissing as missing:
            remarks.append(f"{name} is not measured: {missing}")
            console.print(remarks[-1], markup=False)
    return found


def _versions() -> dict[str, str]:
    pins = [line for line in PEERS.read_text().splitlines() if line and not line.startswith("#")]
    named = dict(pin.split("==") for pin in pins)
    named |= dict(pin.split("@") for pin in (*peers.NPM_PACKAGES, f"node@{peers.NODE_VERSION}"))
    return {"rota": f"{version('pgrota')} {_commit()}".strip(), **named}


def _commit() -> str:
    """Return the commit of Rota, if git is available; `+` marks uncommitted changes."""
    describe = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(
            describe, cwd=HERE, capture_output=True, text=True, timeout=10, check=False
        ).stdout.strip()
    except OSError:
        return ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LocalPostgresError as error:
        sys.exit(f"no PostgreSQL server to measure on: {error}")
