"""Exceptions that Rota raises.

    RotaError
    ├── SettingsError             a setting is missing or invalid
    ├── DefinitionError           a task, flow, service or retry policy is declared incorrectly
    ├── ArgumentError             the arguments of a call are invalid, or do not fit the task
    │   └── PayloadTooLarge       a value is too large to store
    ├── DatabaseError             the database cannot be used in its present state
    │   ├── SchemaMissing         Rota's tables do not exist yet
    │   ├── SchemaChanged         Rota's tables were made by migrations with another text
    │   ├── SchemaTooNew          Rota's tables belong to a newer version
    │   ├── SchemaTooOld          Rota's tables belong to an older version
    │   ├── DatabaseUnavailable   the database did not answer within the time allowed
    │   └── StatementRefused      the server refused a statement; its SQLSTATE is in the message
    ├── KeyBusy                   another open transaction holds the key
    ├── Busy                      the lock, the permit or the `once` call was not free in time
    ├── LockLost                  the lock or permit is no longer held; work under it may conflict
    ├── LeadershipLost            this instance no longer leads
    ├── RateLimitExceeded         the rate limit is used up for now
    ├── RunNotFound               no run has that id
    ├── WorkerNotFound            no worker has that number, or it has stopped
    ├── ScheduleNotFound          no schedule has that name
    ├── TokenNotFound             no token has that id, or it is already revoked
    ├── WebhookFailed             a webhook could not be delivered, or its receiver answered with an error
    │   └── WebhookRefused        the webhook will not be retried: its host is not allowed or rejects it
    ├── RunFailed                 the run ended without a result
    │   ├── RunCancelled
    │   └── RunExpired
    ├── ClaimLost                 this worker no longer holds the job; its outcome is not recorded
    ├── WorkerLost                the worker died or stopped answering while the job ran
    │   └── ProcessLost           the process of a task with isolation="process" died
    ├── TaskTimeout               an attempt exceeded the task's timeout (also a TimeoutError)
    ├── ChildCallsChanged         a retried job makes other child calls than before
    ├── ReplayMismatch            a job's code has changed and no longer matches its journal
    ├── StepFailed                a step of a job failed
    ├── SignalTimeout             no signal arrived in time (also a TimeoutError)
    ├── ResultError               the stored result does not match the declared type
    └── LocalPostgresError        the embedded PostgreSQL cannot be installed, started or used

Tasks raise `RetryLater` and `Requeue`; Rota does not. `RetryLater` requests another attempt after a given
time, `Requeue` returns the job to its queue. Each message states the problem and the remedy.
"""

from __future__ import annotations

from datetime import timedelta


class RotaError(Exception):
    """Base class of Rota's errors."""


class SettingsError(RotaError):
    pass


class DefinitionError(RotaError):
    pass


class ArgumentError(RotaError):
    pass


class PayloadTooLarge(ArgumentError):
    pass


class DatabaseError(RotaError):
    pass


class SchemaMissing(DatabaseError):
    pass


class SchemaChanged(DatabaseError):
    pass


class SchemaTooNew(DatabaseError):
    pass


class SchemaTooOld(DatabaseError):
    pass


class DatabaseUnavailable(DatabaseError):
    may_be_done = False
    """True if the answer was lost: the call may have had its effect or not."""


class StatementRefused(DatabaseError):
    """The server refused a statement and rolled the transaction back. `__cause__` is the driver's error."""


class KeyBusy(RotaError):
    pass


class Busy(RotaError):
    """The lock, the permit or the `once` call is held elsewhere and was not released in time."""


class LockLost(RotaError):
    pass


class LeadershipLost(RotaError):
    pass


class RateLimitExceeded(RotaError):
    """The rate limit is used up for now; try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RunNotFound(RotaError):
    pass


class WorkerNotFound(RotaError):
    pass


class ScheduleNotFound(RotaError):
    pass


class TokenNotFound(RotaError):
    pass


class WebhookFailed(RotaError):
    pass


class WebhookRefused(WebhookFailed):
    pass


class RunFailed(RotaError):
    """The run ended without a result. `kind`, `reason` and `traceback` describe the error of the task."""

    def __init__(
        self, message: str, *, kind: str = "", reason: str = "", traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.reason = reason
        self.traceback = traceback


class RunCancelled(RunFailed):
    pass


class RunExpired(RunFailed):
    pass


class ClaimLost(RotaError):
    pass


class WorkerLost(RotaError):
    """The worker was lost during the attempt, so its progress is unknown.
    `Retry(non_retryable=(WorkerLost,))` prevents a retry."""


class ProcessLost(WorkerLost):
    pass


class TaskTimeout(RotaError, TimeoutError):
    pass


class ChildCallsChanged(RotaError):
    pass


class ReplayMismatch(RotaError):
    """The code of a job changed while the job was in progress. `actual` is the journal entry that the code
    requests now, `expected` the entry that the journal holds there."""

    def __init__(self, message: str, *, actual: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.actual = actual
        self.expected = expected


class StepFailed(RotaError):
    """A step failed. `kind` and `reason` describe the error of the step. If the step ran in this attempt,
    that error is also the `__cause__`; on replay only the stored description exists."""

    def __init__(self, message: str, *, step: str = "", kind: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.kind = kind
        self.reason = reason


class SignalTimeout(RotaError, TimeoutError):
    pass


class ResultError(RotaError):
    pass


class LocalPostgresError(RotaError):
    pass


class RetryLater(Exception):
    """Raised by a task to end this attempt and retry after `after` seconds.

    It counts as an attempt. A job that raises it every time fails when its attempts are used up.
    """

    def __init__(self, after: float | timedelta, reason: str = "") -> None:
        self.after = after.total_seconds() if isinstance(after, timedelta) else float(after)
        super().__init__(reason or f"try again in {self.after:g} s")


class Requeue(Exception):
    """Raised by a task on a draining worker (`ctx.draining`) to return the job to its queue. The attempt is
    not counted.

    On a worker that is not draining, it is a failed attempt; the next one follows after one second.
    """
