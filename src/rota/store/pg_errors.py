"""Classification of database errors: worth a retry, or an error that the user can act on.

Errors are classified by SQLSTATE, so that the driver of a user's connection does not matter.
"""

from __future__ import annotations

import re

from rota.errors import (
    ArgumentError,
    ClaimLost,
    DatabaseError,
    DatabaseUnavailable,
    KeyBusy,
    LeadershipLost,
    LockLost,
    RotaError,
    SchemaMissing,
    SettingsError,
    StatementRefused,
)

# The same statement may succeed later: serialisation failure, deadlock, lock timeout, and a server that
# became read-only by a failover.
_TRANSIENT = {"40001", "40P01", "55P03", "25006"}

# The connection is lost, or the server ends it: connection errors, shutdown and start-up, idle
# timeouts.
_CONNECTION_CLASSES = ("08", "57P0", "25P03", "25P04")

# The server is short of a resource (disk, memory, connections), or its system failed (I/O error).
_SERVER_CLASSES = ("53", "58")

# The row can never be stored: bad data, a failed check, or a value beyond a limit of PostgreSQL.
_UNSTORABLE = {"23514", "54000", "54001"}
_UNSTORABLE_CLASS = "22"

# A retry does not help if the server has understood the login and refuses it.
_LOGIN_REFUSED = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|no password supplied|not permitted"
)

# Messages of PgBouncer when it has no server connection for a client.
_POOLER_EXHAUSTED = re.compile(
    r"server login has been failing|query_wait_timeout|no more connections"
)


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of an error of any driver, also if it is wrapped; "" if it has none."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        for name in ("sqlstate", "pgcode"):
            code = getattr(each, name, None)
            if isinstance(code, str):
                return code
        seen.append(each)
        origin = getattr(each, "orig", None)
        each = origin if isinstance(origin, BaseException) else each.__cause__
    return ""


def is_transient(error: BaseException) -> bool:
    """True if a retry can help: the connection broke, or the server is temporarily unable."""
    if isinstance(error, DatabaseUnavailable):
        return True
    code = sqlstate(error)
    if code:
        return code in _TRANSIENT or code.startswith((*_CONNECTION_CLASSES, *_SERVER_CLASSES))
    # A driver's error without a SQLSTATE is about the connection itself.
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError) or "OperationalError" in names or "InterfaceError" in names


def may_pass(error: BaseException) -> bool:
    """True if a repeatable statement may succeed later: its error is transient, a timeout or an internal
    error of the server."""
    code = sqlstate(error)
    return is_transient(error) or code == "57014" or code.startswith("XX")


def is_server_gone(error: BaseException) -> bool:
    """True if the server is unusable, probably for all connections to it.

    It is shutting down, is read-only since a failover, or does not answer.
    """
    code = sqlstate(error)
    is_silent = any(cls.__name__ == "ConnectionSilent" for cls in type(error).__mro__)
    return is_silent or code == "25006" or code.startswith("57P0")


def is_contended(error: BaseException) -> bool:
    """True if another transaction was in the way. The connection stays usable."""
    return sqlstate(error) in {"40001", "40P01", "55P03", "57014"}


def was_not_sent(error: BaseException) -> bool:
    """True if nothing has reached the database, so that even a non-repeatable statement may be retried.

    No connection could be made, or the pooler had none available.
    """
    if isinstance(error, DatabaseUnavailable):
        # Without a cause, no connection was refused: the pool's timeout has passed while waiting
        # for a slot.
        return error.__cause__ is not None and not error.may_be_done and not _is_rolled_back(error)
    return sqlstate(error) == "08P01" and _POOLER_EXHAUSTED.search(str(error)) is not None


def is_safe_to_repeat(error: BaseException) -> bool:
    """True if the transaction had no effect and may succeed later, even if it is not repeatable.

    No statement reached the server, or the server's error proves that it rolled the transaction back.
    """
    return was_not_sent(error) or _is_rolled_back(error)


def _is_rolled_back(error: BaseException) -> bool:
    code = sqlstate(error)
    return (code in _TRANSIENT or code.startswith(_SERVER_CLASSES)) and not _is_fatal(error)


def _is_fatal(error: BaseException) -> bool:
    """True if the error ended the session: a commit before it may have succeeded."""
    each: BaseException | None = error
    while each is not None:
        severity = getattr(getattr(each, "diag", None), "severity_nonlocalized", None)
        if severity in ("FATAL", "PANIC"):
            return True
        each = each.__cause__
    return False


def is_connection_lost(error: BaseException) -> bool:
    """True if the connection broke before the answer arrived: the statement may have been committed."""
    if isinstance(error, RotaError):
        return False
    if _is_fatal(error):
        return True
    code = sqlstate(error)
    return code.startswith(_CONNECTION_CLASSES) if code else is_transient(error)


def is_unstorable(error: BaseException) -> bool:
    """True if the error proves that this row can never be stored.

    An error without a SQLSTATE that is not about the connection was raised by the driver: it could not
    encode a value.
    """
    code = sqlstate(error)
    if code:
        return code in _UNSTORABLE or code.startswith(_UNSTORABLE_CLASS)
    return not is_transient(error)


class translated:
    """Translates errors that leave the block, if users can act on them.

    `own_connection` marks a connection of Rota: all its driver errors become a DatabaseError. Errors of a
    user's connection stay as they are, because the user's code may catch them.
    """

    __slots__ = ("_own_connection", "_schema")

    def __init__(self, schema: str, *, own_connection: bool = False) -> None:
        self._schema = schema
        self._own_connection = own_connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RotaError):
            explained = translate(error, self._schema)
            if explained is None and self._own_connection:
                explained = _driver_error(error)
            if explained is not None:
                raise explained from error


def _driver_error(error: Exception) -> DatabaseError | None:
    """Return Rota's error for any error of the driver of its own connections; None for other errors."""
    if not any(cls.__module__ == "psycopg" for cls in type(error).__mro__):
        return None
    reason, code = first_line(error), sqlstate(error)
    if is_connection_lost(error) and not was_not_sent(error):
        lost = DatabaseUnavailable(
            f"the connection was lost before the answer came: {reason}; "
            "the statement may have been committed; a start with a key can be repeated"
        )
        lost.may_be_done = True
        return lost
    if is_transient(error):
        return DatabaseUnavailable(
            f"the database cannot do this now: {reason} (SQLSTATE {code}); try again later"
        )
    state = f" (SQLSTATE {code})" if code else ""
    return StatementRefused(f"the database refused the statement: {reason}{state}")


def translate(error: BaseException, schema: str) -> RotaError | None:
    """Return Rota's error for a database error that users can act on; None if there is none."""
    match sqlstate(error):
        case "RT001":
            return KeyBusy(
                f"{first_line(error)}; try again when that transaction has ended, "
                "or start the run inside it with options(on=…)"
            )
        case "RT002":
            return ClaimLost(f"{first_line(error)}; this attempt is discarded")
        case "RT003":
            return ArgumentError(first_line(error))
        case "RT004":
            return LockLost(f"{first_line(error)}; this transaction is rolled back")
        case "RT005":
            return LeadershipLost(f"{first_line(error)}; this transaction is rolled back")
        case "42P01" | "3F000" | "42883" | "42703" | "42704":
            return SchemaMissing(
                f"schema {schema!r} has no tables of Rota, or old ones "
                f"({first_line(error)}); run `rota db migrate`, or await app.migrate()"
            )
        case "42501":
            return DatabaseError(
                f"the database role may not do this: {first_line(error)}; "
                f"grant it usage on schema {schema!r} and its tables, or use the owner's role"
            )
    return None


def connect_error(error: Exception) -> RotaError:
    """Return Rota's error for a failed connection attempt. The server's refusals have a text only."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "ProgrammingError" in names:
        # libpq's message quotes the unreadable part, which may be the password, so it is left out.
        return SettingsError(
            "the DSN cannot be read; write it as postgresql://user:password@host/name"
        )
    reason = first_line(error)
    if _LOGIN_REFUSED.search(reason):
        return DatabaseError(f"the database refuses us: {reason}; check ROTA_DATABASE_URL")
    return DatabaseUnavailable(
        f"cannot reach the database: {reason}; check ROTA_DATABASE_URL, "
        "and that PostgreSQL is running there"
    )


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
