"""Durable work and safe company for Python applications, with nothing to run but PostgreSQL."""

from typing import TYPE_CHECKING, Any

from rota.app import Call, Flow, FlowCall, FlowTask, Rota, Run, Task
from rota.errors import (
    ArgumentError,
    Busy,
    ClaimLost,
    HandBack,
    KeyBusy,
    LockLost,
    RateExceeded,
    ReplayMismatch,
    RetryLater,
    RotaError,
    RunCancelled,
    RunExpired,
    RunFailed,
    SignalTimeout,
    StepFailed,
    TaskTimeout,
    TermLost,
    WorkerLost,
)
from rota.model.context import Context, Failure
from rota.model.retry import Retry
from rota.model.service import ServiceContext
from rota.model.settings import Settings
from rota.model.task import Loss

if TYPE_CHECKING:
    from rota.coord.insert import Inserted
    from rota.model.agenda import Schedule, Tick

__all__ = [
    "ArgumentError",
    "Busy",
    "Call",
    "ClaimLost",
    "Context",
    "Failure",
    "Flow",
    "FlowCall",
    "FlowTask",
    "HandBack",
    "Inserted",
    "KeyBusy",
    "LockLost",
    "Loss",
    "RateExceeded",
    "ReplayMismatch",
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
    "TermLost",
    "Tick",
    "WorkerLost",
]


def __getattr__(name: str) -> Any:
    """What only few programs name is read when one does."""
    if name == "Inserted":
        from rota.coord.insert import Inserted

        return Inserted
    if name in ("Schedule", "Tick"):
        from rota.model import agenda

        return getattr(agenda, name)
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
