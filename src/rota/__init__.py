"""Durable work and safe company for Python applications, with nothing to run but PostgreSQL."""

from rota.app import Call, Flow, FlowCall, FlowTask, Rota, Run, Task
from rota.errors import (
    ArgumentError,
    KeyBusy,
    RetryLater,
    RotaError,
    RunCancelled,
    RunExpired,
    RunFailed,
)
from rota.model.context import Context, Failure
from rota.model.retry import Retry
from rota.model.settings import Settings

__all__ = [
    "ArgumentError",
    "Call",
    "Context",
    "Failure",
    "Flow",
    "FlowCall",
    "FlowTask",
    "KeyBusy",
    "Retry",
    "RetryLater",
    "Rota",
    "RotaError",
    "Run",
    "RunCancelled",
    "RunExpired",
    "RunFailed",
    "Settings",
    "Task",
]
