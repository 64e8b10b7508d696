"""Everything Rota raises on purpose.

    RotaError
    ├── SettingsError             a setting is missing or wrong
    ├── DefinitionError           a task or a flow cannot be as it is written
    ├── ArgumentError             what was passed to `start` does not fit the task
    │   └── PayloadTooLarge       … or is too big to store
    ├── DatabaseError             the database cannot be used as it is
    │   ├── SchemaMissing         Rota's tables are not there yet
    │   ├── SchemaTooNew          … or belong to a newer Rota
    │   ├── SchemaTooOld          … or to an older one
    │   └── DatabaseUnavailable   no answer within the time allowed
    ├── KeyBusy                   the key is held by somebody's open transaction
    ├── Busy                      somebody else has the lock, the permit or the call, and kept it too long
    ├── LockLost                  the lock or permit is no longer held: what is done under it may be undone
    ├── LeadershipLost            this instance no longer leads
    ├── RateLimitExceeded         the rate allows no more for now
    ├── RunNotFound               no run has that id
    ├── WorkerNotFound            no worker has that number, or it has left
    ├── ScheduleNotFound          no schedule has that name
    ├── TokenNotFound             no token has that id, or it was revoked before
    ├── WebhookFailed             the receiver of a webhook could not be told, or did not take it
    │   └── WebhookRefused        … and would not another time: it must not be sent there, or is not wanted
    ├── RunFailed                 the run ended without a result
    │   ├── RunCancelled
    │   └── RunExpired
    ├── ClaimLost                 the job is no longer this worker's: what it does counts for nothing
    ├── WorkerLost                the worker died, or fell silent, while the job ran
    │   └── ProcessLost           … or the process a task with isolation="process" ran in
    ├── TaskTimeout               an attempt took longer than the task's timeout (a TimeoutError, too)
    ├── ChildCallsChanged         a job that is tried again makes other calls than before
    ├── ReplayMismatch            a job's code has changed, and comes to something else than it had before
    ├── StepFailed                a step of a job's code failed
    ├── SignalTimeout             nobody sent the signal in time (a TimeoutError, too)
    ├── ResultError               the stored result is not what the task declares
    └── LocalPostgresError        the embedded PostgreSQL cannot be had

`RetryLater` and `Requeue` are raised by a task, not by Rota: they ask for another attempt at a time of its
choosing, and for somebody else to do it.
Each message says what is so and what to do about it.
"""

from __future__ import annotations

from datetime import timedelta


class RotaError(Exception):
    """What all errors of Rota have in common."""


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


class SchemaTooNew(DatabaseError):
    pass


class SchemaTooOld(DatabaseError):
    pass


class DatabaseUnavailable(DatabaseError):
    pass


class KeyBusy(RotaError):
    pass


class Busy(RotaError):
    """Somebody else has it, and did not let go in time."""


class LockLost(RotaError):
    pass


class LeadershipLost(RotaError):
    pass


class RateLimitExceeded(RotaError):
    """The rate allows no more for now; in `retry_after` seconds it would."""

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
    """The run ended without a result. `kind`, `reason` and `traceback` are the task's own error's."""

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
    """How far the attempt came, nobody knows. `Retry(never=(WorkerLost,))`: then not once more."""


class ProcessLost(WorkerLost):
    pass


class TaskTimeout(RotaError, TimeoutError):
    pass


class ChildCallsChanged(RotaError):
    pass


class ReplayMismatch(RotaError):
    """Of a job whose code has changed while it was under way. `asked` is what the code comes to now, `kept`
    what it had come to there."""

    def __init__(self, message: str, *, actual: str = "", expected: str = "") -> None:
        super().__init__(message)
        self.actual = actual
        self.expected = expected


class StepFailed(RotaError):
    """A step failed. `kind` and `reason` are its own error's, which is also the cause where the step ran
    just now; when it is replayed there is only what was kept."""

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
    """Raised by a task: this attempt is over, try again after so many seconds.

    It counts as an attempt, so a job that keeps asking ends when its attempts are used up.
    """

    def __init__(self, after: float | timedelta, reason: str = "") -> None:
        self.after = after.total_seconds() if isinstance(after, timedelta) else float(after)
        super().__init__(reason or f"try again in {self.after:g} s")


class Requeue(Exception):
    """Raised by a task whose worker is about to stop (`ctx.draining`): the job goes back to its queue as it
    was, the attempt uncounted.

    If the worker is not about to stop it is a failed attempt like any other, with a second's wait.
    """
