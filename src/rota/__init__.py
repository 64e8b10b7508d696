"""Durable work and safe company for Python applications, with nothing to run but PostgreSQL."""

from rota.app import Call, Flow, FlowCall, FlowTask, Rota, Run, Task
from rota.coord.insert import Inserted
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
from rota.model.agenda import Schedule, Tick
from rota.model.context import Context, Failure
from rota.model.retry import Retry
from rota.model.service import ServiceContext
from rota.model.settings import Settings
from rota.model.task import Loss

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
