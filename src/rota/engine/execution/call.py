"""Bound tasks and flows: starts that are validated and encoded, but not sent yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from rota.errors import RunFailed
from rota.model import codec
from rota.model.flow import FlowPlan
from rota.model.task import TaskDefinition
from rota.store.flows import StartRun
from rota.store.jobs import StartJob
from rota.store.runs import JobResultRow

R = TypeVar("R")


class BoundTask(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A task with its arguments."""

    task: TaskDefinition
    start: StartJob

    @property
    def name(self) -> str:
        return self.task.name

    def read(self, result: bytes | None) -> R:
        value: R = self.task.read_result(result)
        return value


class BoundFlow(msgspec.Struct, frozen=True, gc=False):
    """A flow with its input."""

    plan: FlowPlan
    run: StartRun

    @property
    def name(self) -> str:
        return self.plan.name

    def read(self, results: list[JobResultRow]) -> dict[str, Any]:
        return results_by_task(results, {node.task.name: node.task for node in self.plan.nodes})


def results_by_task(
    results: list[JobResultRow], tasks: Mapping[str, TaskDefinition]
) -> dict[str, Any]:
    """Return the results of a flow's last tasks by their names in the flow; None for a skipped task."""
    return {
        each.task.rpartition(".")[2]: (
            tasks[each.task].read_result(each.result)
            if each.task in tasks
            else each.result and msgspec.json.decode(each.result)
        )
        for each in results
    }


def run_failed(subject: str, document: bytes | None) -> RunFailed:
    """Return the error for a run that failed with the stored error `document`."""
    error = codec.decode_error(document)
    return RunFailed(
        f"{subject} failed at attempt {error.attempt}: {error.type}: {error.message}",
        kind=error.type,
        reason=error.message,
        traceback=error.traceback,
    )
