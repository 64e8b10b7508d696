"""Durable work and safe company for Python applications, with nothing to run but PostgreSQL."""

from rota.app import Call, Flow, FlowCall, FlowTask, Rota, Run, Task
from rota.errors import (
    ArgumentError,
    ClaimLost,
    HandBack,
    KeyBusy,
    ReplayMismatch,
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
from rota.model.settings import Settings
from rota.model.task import Loss

__all__ = [
    "ArgumentError",
    "Call",
    "ClaimLost",
    "Context",
    "Failure",
    "Flow",
    "FlowCall",
    "FlowTask",
    "HandBack",
    "KeyBusy",
    "Loss",
    "ReplayMismatch",
    "Retry",
    "RetryLater",
    "Rota",
    "RotaError",
    "Run",
    "RunCancelled",
    "RunExpired",
    "RunFailed",
    "Settings",
    "SignalTimeout",
    "StepFailed",
    "Task",
    "TaskTimeout",
    "WorkerLost",
]
