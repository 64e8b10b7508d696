"""Test bench for one executor: jobs in, outcomes out, no database."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from rota import Task
from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import StopReason
from rota.engine.execution.process.executor import ProcessExecutor
from rota.engine.execution.threads import ThreadExecutor
from rota.model.outcome import FinalOutcome, Outcome, Retried
from rota.model.task import TaskDefinition
from rota.store.jobs import ClaimedJob

LIMIT = 10_000

_claims = count(1)


def claimed(task: str, job: int = 7, checkpoint: str | None = None, **args: Any) -> ClaimedJob:
    return ClaimedJob(
        next(_claims),
        job,
        1,
        0,
        1,
        job,
        task,
        "default",
        json.dumps(args),
        None,
        None,
        3,
        None,
        checkpoint,
    )


class Workbench:
    def __init__(self, kind: Callable[..., Any], **how: Any) -> None:
        self.outcomes: dict[ClaimedJob, asyncio.Future[Outcome]] = {}
        self.ended: list[tuple[ClaimedJob, Outcome]] = []
        self.executor: CoroutineExecutor | ThreadExecutor | ProcessExecutor = kind(
            self._finished, LIMIT, **how
        )

    def _finished(self, job: ClaimedJob, outcome: Outcome, took: float) -> None:
        assert took >= 0
        self.ended.append((job, outcome))
        self.outcomes[job].set_result(outcome)  # raises on a second outcome

    def start(
        self, task: Task[..., Any] | TaskDefinition, timeout: float | None = None, **args: Any
    ) -> ClaimedJob:
        definition = task if isinstance(task, TaskDefinition) else task._definition
        return self.put(claimed(definition.name, **args), definition, timeout)

    def put(
        self, job: ClaimedJob, definition: TaskDefinition, timeout: float | None = None
    ) -> ClaimedJob:
        self.outcomes[job] = asyncio.get_running_loop().create_future()
        self.executor.start(job, definition, definition.policy.retry, timeout)
        return job

    def stop(self, job: ClaimedJob, why: StopReason) -> None:
        self.executor.stop(job, why)

    async def outcome(self, job: ClaimedJob, within: float = 60) -> Outcome:
        async with asyncio.timeout(within):
            return await asyncio.shield(self.outcomes[job])

    async def run(self, task: Task[..., Any] | TaskDefinition, **args: Any) -> Outcome:
        return await self.outcome(self.start(task, **args))

    async def __aenter__(self) -> Workbench:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.executor.close()
        if isinstance(self.executor, ProcessExecutor):
            await self.executor.wait_closed()


def error(outcome: Outcome) -> tuple[str, str]:
    """Return the type and message of the attempt's error."""
    assert isinstance(outcome, Retried | FinalOutcome), outcome
    document = json.loads(outcome.error or "{}")
    return document["type"], document["message"]


async def until_written(file: Path, within: float = 60) -> str:
    """Wait until the file has content, and return it."""
    async with asyncio.timeout(within):
        while True:
            if text := _text(file):
                return text
            await asyncio.sleep(0.01)


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    except NotADirectoryError:  # no /proc on this system
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"


async def until_gone(pid: int, within: float = 60) -> None:
    async with asyncio.timeout(within):
        while is_alive(pid):
            await asyncio.sleep(0.01)
