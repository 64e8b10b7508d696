"""Durable jobs, workflows, schedules and locks for Python. PostgreSQL is all you need."""

from typing import TYPE_CHECKING, Any

from rota.app import BoundFlow, BoundTask, Flow, FlowTask, Rota, Run, Task
from rota.errors import (
    ArgumentError,
    Busy,
    ClaimLost,
    KeyBusy,
    LeadershipLost,
    LockLost,
    RateLimitExceeded,
    ReplayMismatch,
    Requeue,
    RetryLater,
    RotaError,
    RunCancelled,
    RunExpired,
    RunFailed,
    SignalTimeout,
    StepFailed,
    TaskTimeout,
    WorkerLost,
)
from rota.model.context import Context, Failure
from rota.model.retry import Retry
from rota.model.service import ServiceContext
from rota.model.settings import Settings
from rota.model.task import LostJob

if TYPE_CHECKING:
    from rota.coord.insert_once import Inserted
    from rota.model.schedule_view import Schedule, Tick

__all__ = [
    "ArgumentError",
    "BoundFlow",
    "BoundTask",
    "Busy",
    "ClaimLost",
    "Context",
    "Failure",
    "Flow",
    "FlowTask",
    "Inserted",
    "KeyBusy",
    "LeadershipLost",
    "LockLost",
    "LostJob",
    "RateLimitExceeded",
    "ReplayMismatch",
    "Requeue",
    "Retry",
    "RetryLater",
    "Rota",
    "RotaError",
    "Run",
    "RunCancelled",
    "RunExpired",
    "RunFailed",
    "Schedule",
    "ServiceContext",
    "Settings",
    "SignalTimeout",
    "StepFailed",
    "Task",
    "TaskTimeout",
    "Tick",
    "WorkerLost",
]


def __getattr__(name: str) -> Any:
    """Import rarely used names on first access, so that `import rota` stays fast."""
    if name == "Inserted":
        from rota.coord.insert_once import Inserted

        return Inserted
    if name in ("Schedule", "Tick"):
        from rota.model import schedule_view

        return getattr(schedule_view, name)
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
