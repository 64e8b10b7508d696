"""Request and response documents of the operations on runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model.document import Id, Mark, Payload, StoredError
from rota.operations.documents import Cursor, Limit, Name, Next
from rota.store.read.job_detail import LogRow, SignalRow, StepRow
from rota.store.read.runs import AttemptRow, ChildRunRow, JobRow, RunRow

State = Literal[
    "queued", "sleeping", "running", "quarantined", "succeeded", "failed", "cancelled", "expired"
]


class StartRunRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[Name, Meta(description="Name of a task or a flow of this app.")]
    input: Annotated[dict[str, Any], Meta(description="Arguments by name.")] = {}
    key: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    delay: Annotated[float, Meta(ge=0, le=3.2e9, description="Seconds.")] | None = None
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    queue: Annotated[Name, Meta(description="Queue of a task, in place of its own.")] | None = None


class StartedRun(msgspec.Struct, frozen=True):
    run: Id
    created: Annotated[bool, Meta(description="False if a run with this key existed.")]


class RunPage(msgspec.Struct, frozen=True):
    runs: list[RunRow]
    next: (
        Annotated[
            Next,
            Meta(description="Cursor of the next page; also present if this page is not full."),
        ]
        | None
    )


class JobDocument(JobRow, frozen=True):
    attempts: Annotated[list[AttemptRow], Meta(description="Attempts before the last one.")]


class JobPage(msgspec.Struct, frozen=True):
    jobs: list[JobDocument]
    next: Next | None


class RunDocument(msgspec.Struct, frozen=True):
    """A run of a task or a flow, or one job of a run."""

    run: Id
    job: Annotated[Id, Meta(description="Id of the job; null for a flow's run.")] | None
    name: Annotated[
        str, Meta(description="Name of the task or flow; empty for child calls of a job.")
    ]
    is_flow: bool
    queue: str | None
    state: str
    attempt: int
    worker: Id | None
    created: datetime
    since: datetime
    finished: datetime | None
    seconds: float | None
    expires: datetime | None
    wakes: datetime | None
    awaits: list[str] | None
    priority: int | None
    key: str | None
    parent: Annotated[Id, Meta(description="Job that started this run.")] | None
    origin: Annotated[Id, Meta(description="Run that this one was forked from.")] | None
    error: StoredError
    attempts: list[AttemptRow]
    steps: Annotated[list[StepRow], Meta(description="Latest steps, the latest first.")]
    signals: list[SignalRow]
    children: list[ChildRunRow]
    jobs: Annotated[list[JobDocument], Meta(description="First jobs of a flow's run.")]
    job_count: Annotated[int, Meta(description="Number of jobs of a flow's run.")]
    next_jobs: Annotated[Next, Meta(description="Cursor for /runs/{run}/jobs.")] | None
    done: float | None
    total: float | None
    crashes: Annotated[int, Meta(description="Workers lost while it ran, if it is a suspect.")]
    is_suspect: Annotated[bool, Meta(description="True if it is claimed alone.")]
    input: Payload
    result: Payload
    note: (
        Annotated[str, Mark.HIDDEN, Meta(description="Absent for viewers.")] | UnsetType | None
    ) = UNSET
    options: Payload | UnsetType = UNSET
    logs: (
        Annotated[
            list[LogRow],
            Mark.HIDDEN,
            Meta(description="Latest lines first. Absent for viewers."),
        ]
        | UnsetType
    ) = UNSET


class CancelledRun(msgspec.Struct, frozen=True):
    run: Id
    status: Annotated[
        Literal["cancelled", "requested"],
        Meta(description="requested: it is running, and its worker was asked to stop it."),
    ]


class RetriedRun(msgspec.Struct, frozen=True):
    run: Id


class SignalRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    payload: Annotated[Any, Meta(description="Any JSON.")] = None


class SentSignal(msgspec.Struct, frozen=True):
    run: Id
    sent: bool
    status: Annotated[
        Literal["sent", "known", "ended"],
        Meta(
            description=(
                "known: the run has a signal of this name, which is kept; ended: the run has ended."
            )
        ),
    ]
    awaits: Annotated[
        list[str],
        Meta(description="Signals that the run waits for, if no job waits for this one."),
    ]


class ReleasedJobs(msgspec.Struct, frozen=True):
    run: Id
    released: Annotated[int, Meta(description="Jobs released from quarantine.")]


class ForkRunRequest(msgspec.Struct, forbid_unknown_fields=True):
    task: Annotated[Name, Meta(description="For a flow: the first task to run again.")] | None = (
        None
    )
    step: Annotated[Name, Meta(description="For a task: the first step to run again.")] | None = (
        None
    )
    input: (
        Annotated[
            dict[str, Any], Meta(description="For a task: new arguments, in place of its own.")
        ]
        | None
    ) = None


class JobListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Limit = 200
    cursor: Cursor | None = None
