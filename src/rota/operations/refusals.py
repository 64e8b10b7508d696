"""Errors with which an operation refuses a request, and one table: error → HTTP status and exit code."""

from __future__ import annotations

from typing import NamedTuple

from rota import errors
from rota.errors import RotaError

OK = 0
FAILED = 1
USAGE_ERROR = 2
NOT_FOUND = 3
NO_DATABASE = 4


class NotFound(RotaError):
    """The object does not exist."""


class Malformed(RotaError):
    """The request is not JSON."""


class Conflict(RotaError):
    """The object's state does not allow the action."""


class Forbidden(RotaError):
    """The caller's role does not allow the action."""


class TooSlow(RotaError):
    """The database did not answer a read before its timeout."""


class Refusal(NamedTuple):
    """An error as each surface reports it."""

    kind: type[RotaError]
    status: int
    """HTTP status."""
    code: str
    """Error code for programs."""
    exit_code: int
    """Exit code of the command line."""


REFUSALS = (
    Refusal(errors.PayloadTooLarge, 413, "too_large", USAGE_ERROR),
    Refusal(Malformed, 400, "malformed", USAGE_ERROR),
    Refusal(errors.ArgumentError, 422, "invalid", USAGE_ERROR),
    Refusal(errors.DefinitionError, 422, "invalid", USAGE_ERROR),
    Refusal(errors.SettingsError, 409, "conflict", USAGE_ERROR),
    Refusal(errors.RunNotFound, 404, "not_found", NOT_FOUND),
    Refusal(errors.WorkerNotFound, 404, "not_found", NOT_FOUND),
    Refusal(errors.ScheduleNotFound, 404, "not_found", NOT_FOUND),
    Refusal(errors.TokenNotFound, 404, "not_found", NOT_FOUND),
    Refusal(NotFound, 404, "not_found", NOT_FOUND),
    Refusal(Conflict, 409, "conflict", NOT_FOUND),
    Refusal(Forbidden, 403, "forbidden", FAILED),
    Refusal(TooSlow, 503, "too_slow", FAILED),
    Refusal(errors.StatementRefused, 500, "internal", FAILED),
    Refusal(errors.DatabaseError, 503, "database", NO_DATABASE),
    Refusal(errors.LocalPostgresError, 409, "conflict", NO_DATABASE),
    Refusal(RotaError, 409, "conflict", FAILED),
)
"""The first row whose kind fits is used."""


def refusal_of(error: RotaError) -> Refusal:
    return next(each for each in REFUSALS if isinstance(error, each.kind))


def status_of(kind: type[RotaError]) -> int:
    """Return the HTTP status of an error class."""
    return next(each.status for each in REFUSALS if issubclass(kind, each.kind))
