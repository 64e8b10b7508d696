"""Exit codes for scripts, and one-line error messages.

A user's mistake never shows a traceback; a bug always does.
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
from rota.operations.refusals import FAILED, NO_DATABASE, NOT_FOUND, OK, USAGE_ERROR, refusal_of

__all__ = [
    "EXIT_CODE_MEANINGS",
    "FAILED",
    "INTERRUPTED",
    "NOT_FOUND",
    "NO_DATABASE",
    "OK",
    "USAGE_ERROR",
    "CommandError",
    "exit_code_of",
    "exit_with",
    "format_click_error",
    "print_error",
    "print_note",
    "translate_database_errors",
]

INTERRUPTED = 130  # the shells' code for a program ended by Ctrl-C

EXIT_CODE_MEANINGS = {
    OK: "done",
    FAILED: "the action failed: no result, or not before the timeout",
    USAGE_ERROR: "invalid option, setting or argument",
    NOT_FOUND: "no such run, worker or lock, or its state does not allow this",
    NO_DATABASE: "no database, or its schema does not match this version of Rota",
}


class CommandError(click.ClickException):
    """Error that ends the command with one line on stderr and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


def exit_code_of(error: errors.RotaError) -> int:
    return refusal_of(error).exit_code


def exit_with(code: int) -> NoReturn:
    """Exit without a message."""
    raise Exit(code)


def print_error(message: str) -> None:
    """Print the message as one line on stderr."""
    name = click.style("rota:", fg="red", bold=True)
    click.echo(f"{name} {' '.join(message.split())}", err=True)


def print_note(message: str) -> None:
    """Print information that is not an error to stderr, so that pipes are not affected."""
    click.echo(click.style(message, dim=True), err=True)


def format_click_error(error: click.ClickException) -> str:
    """Return click's message in the project's style, with a remedy."""
    message = error.format_message().strip().rstrip(".")
    if not isinstance(error, click.UsageError):
        return message
    path = error.ctx.command_path if error.ctx else "rota"
    return f"{message[:1].lower()}{message[1:]}; see `{path} --help`"


@contextmanager
def translate_database_errors() -> Iterator[None]:
    """Turn driver errors about the connection into a CommandError."""
    try:
        yield
    except Exception as error:
        # For an unreachable server the driver's message is used, without secrets.
        is_unreachable = isinstance(error, errors.DatabaseUnavailable)
        command_error = _driver_error((is_unreachable and error.__context__) or error)
        if command_error is None:
            raise
        raise command_error from error


def _driver_error(error: BaseException) -> CommandError | None:
    psycopg = sys.modules.get("psycopg")
    if psycopg is None or not isinstance(error, psycopg.Error):
        return None
    line = str(error).strip().split("\n", 1)[0]
    if error.sqlstate is not None:
        # The server refused: too busy, shutting down, out of disk space.
        is_operational = isinstance(error, psycopg.OperationalError)
        return (
            CommandError(f"the database refused the command: {line}; try again later", NO_DATABASE)
            if is_operational
            else None
        )
    if isinstance(error, psycopg.ProgrammingError):
        return CommandError(
            f"the DSN cannot be read: {_redact(line)}; write it as "
            "postgresql://user:password@host/name",
            USAGE_ERROR,
        )
    if isinstance(error, psycopg.OperationalError):
        line = re.sub(r"^connection (failed|is bad): ", "", line)
        return CommandError(
            f"cannot connect to the database: {line}; check --dsn, or ROTA_DATABASE_URL",
            NO_DATABASE,
        )
    return None


def _redact(line: str) -> str:
    """Remove quoted parts of libpq's message that may contain a password."""
    return re.sub(r'"[^"]*[:@%][^"]*"', "what was given", line)
