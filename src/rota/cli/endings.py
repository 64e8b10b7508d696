"""How a command ends: exit codes scripts can use, and one line for a user's mistake.

A mistake never shows a traceback; a bug always does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import rich_click as click
from click.exceptions import Exit

from rota import errors

OK = 0
FAILED = 1
MISTAKE = 2
NOT_THERE = 3
NO_DATABASE = 4
INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended

MEANINGS = {
    OK: "done",
    FAILED: "what was asked for failed: no result, not in time",
    MISTAKE: "a mistake on the command line, in a setting, in an argument",
    NOT_THERE: "no such run, worker or lock, or not in a state for that (any more)",
    NO_DATABASE: "no database, or not the schema this Rota works with",
}

_CODES: tuple[tuple[type[errors.RotaError], int], ...] = (
    (errors.SettingsError, MISTAKE),
    (errors.DefinitionError, MISTAKE),
    (errors.ArgumentError, MISTAKE),
    (errors.RunNotFound, NOT_THERE),
    (errors.WorkerNotFound, NOT_THERE),
    (errors.ScheduleNotFound, NOT_THERE),
    (errors.TokenNotFound, NOT_THERE),
    (errors.DatabaseError, NO_DATABASE),
    (errors.LocalPostgresError, NO_DATABASE),
)


class Told(click.ClickException):
    """Ends the command with one line on stderr and a code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


def code_of(error: errors.RotaError) -> int:
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def leave(code: int) -> NoReturn:
    """End here, with nothing more to say."""
    raise Exit(code)


def tell(message: str) -> None:
    """One line on stderr, however many the message had."""
    name = click.style("rota:", fg="red", bold=True)
    click.echo(f"{name} {' '.join(message.split())}", err=True)


def note(message: str) -> None:
    """Something worth knowing that is no failure, on stderr, where it spoils no pipe."""
    click.echo(click.style(message, dim=True), err=True)


def in_our_words(error: click.ClickException) -> str:
    """click's complaint, as one of ours: what is so; what to do."""
    message = error.format_message().strip().rstrip(".")
    if not isinstance(error, click.UsageError):
        return message
    path = error.ctx.command_path if error.ctx else "rota"
    return f"{message[:1].lower()}{message[1:]}; see `{path} --help`"


@contextmanager
def database_errors_told() -> Iterator[None]:
    """What the driver raises about the connection itself becomes one line."""
    try:
        yield
    except Exception as error:
        # One that could not be reached is told by what the driver said, without its secrets.
        unreached = isinstance(error, errors.DatabaseUnavailable)
        told = _told_of_driver((unreached and error.__context__) or error)
        if told is None:
            raise
        raise told from error


def _told_of_driver(error: BaseException) -> Told | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    line = str(error).strip().split("\n", 1)[0]
    if error.sqlstate is not None:
        # The server itself said no: too busy, shutting down, out of space.
        known = isinstance(error, psycopg.OperationalError)
        return Told(f"the database says: {line}; try again later", NO_DATABASE) if known else None
    if isinstance(error, psycopg.ProgrammingError):
        return Told(
            f"the DSN cannot be read: {_without_secrets(line)}; write it as "
            "postgresql://user:password@host/name",
            MISTAKE,
        )
    if isinstance(error, psycopg.OperationalError):
        line = re.sub(r"^connection (failed|is bad): ", "", line)
        return Told(
            f"cannot connect to the database: {line}; check --dsn, or ROTA_DATABASE_URL",
            NO_DATABASE,
        )
    return None


def _without_secrets(line: str) -> str:
    """libpq quotes what it could not read, and that may be a password."""
    return re.sub(r'"[^"]*[:@%][^"]*"', "what was given", line)
