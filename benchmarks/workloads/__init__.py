"""Workloads in the order of their execution. Each is a function of a stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.findings import Findings
from benchmarks.stage import Stage
from benchmarks.workloads import (
    backlog,
    bulk,
    chain,
    dag,
    drain,
    history,
    idle,
    importing,
    kill,
    latency,
    retention,
    single,
    snapshot,
    steps,
    wide,
)

Workload = Callable[[Stage], Findings]

WORKLOADS: Mapping[str, Workload] = {
    "bulk": bulk.run,
    "single": single.run,
    "drain": drain.run_one,
    "drain2": drain.run_two,
    "latency": latency.run,
    "idle": idle.run,
    "kill": kill.run,
    "backlog": backlog.run,
    "history": history.run,
    "snapshot": snapshot.run,
    "retention": retention.run,
    "dag": dag.run,
    "wide": wide.run,
    "chain": chain.run,
    "steps": steps.run,
    "import": importing.run,
}
