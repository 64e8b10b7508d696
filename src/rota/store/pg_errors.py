"""What a database error means: worth another try, or whose mistake it is.

Errors are judged by SQLSTATE, so that the driver on a user's connection does not matter.
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
)

# The same statement may succeed later: serialisation failure, deadlock, lock timeout, and a server that
# became read-only by a failover.
_TRANSIENT = {"40001", "40P01", "55P03", "25006"}

# The connection is lost, or the server ends it: connection errors, shutdown and start-up, idle time-outs.
_CONNECTION_CLASSES = ("08", "57P0", "25P03", "25P04")

# The server is short of a resource (disk, memory, connections), or its system failed (I/O error).
_SERVER_CLASSES = ("53", "58")

# The row can never be stored: bad data, a failed check, or a value beyond a limit of PostgreSQL.
_UNSTORABLE = {"23514", "54000", "54001"}
_UNSTORABLE_CLASS = "22"

# Trying again does not help when the server has understood and says no.
_LOGIN_REFUSED = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|no password supplied|not permitted"
)

# What PgBouncer says to whom it could not give a connection of its own.
_POOLER_EXHAUSTED = re.compile(
    r"server login has been failing|query_wait_timeout|no more connections"
)


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of any driver, through whatever wraps it; "" where there is none."""
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
    """Whether trying again can help: the connection broke, or the server says not now."""
    if isinstance(error, DatabaseUnavailable):
        return True
    code = sqlstate(error)
    if code:
        return code in _TRANSIENT or code.startswith((*_CONNECTION_CLASSES, *_SERVER_CLASSES))
    # A driver's error without a code is one about the connection itself.
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError) or "OperationalError" in names or "InterfaceError" in names


def is_server_gone(error: BaseException) -> bool:
    """Whether the server at the other end is of no more use, and likely to every connection to it: it is
    being shut down, it can only be read since a failover, or nothing comes through any more."""
    code = sqlstate(error)
    is_silent = any(cls.__name__ == "ConnectionSilent" for cls in type(error).__mro__)
    return is_silent or code == "25006" or code.startswith("57P0")


def is_contended(error: BaseException) -> bool:
    """Whether somebody else was in the way, and the connection is as good as before."""
    return sqlstate(error) in {"40001", "40P01", "55P03", "57014"}


def was_not_sent(error: BaseException) -> bool:
    """Whether nothing has reached the database yet, so that even what must not be done twice may be tried
    again: no connection could be made, or the pooler had none to give."""
    if isinstance(error, DatabaseUnavailable):
        # One without a cause was refused by nobody: it has waited for its turn, and long enough.
        return error.__cause__ is not None
    return sqlstate(error) == "08P01" and _POOLER_EXHAUSTED.search(str(error)) is not None


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection went, and the answer with it: what was asked may have been done, or not."""
    if isinstance(error, RotaError):
        return False
    code = sqlstate(error)
    return code.startswith(_CONNECTION_CLASSES) if code else is_transient(error)


def is_unstorable(error: BaseException) -> bool:
    """True if the error proves that this very row can never be stored.

    An error without a SQLSTATE that is not about the connection was raised by the driver: it could not
    encode a value.
    """
    code = sqlstate(error)
    if code:
        return code in _UNSTORABLE or code.startswith(_UNSTORABLE_CLASS)
    return not is_transient(error)


class translated:
    """Errors that leave the block and that a user can act on are said in our words. `ours`: the connection
    is one of ours, so how its driver says that it broke is nobody else's business."""

    __slots__ = ("_own_connection", "_schema")

    def __init__(self, schema: str, *, own_connection: bool = False) -> None:
        self._schema = schema
        self._own_connection = own_connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            explained = translate(error, self._schema)
            if explained is not None:
                raise explained from error
            if self._own_connection and is_connection_lost(error):
                raise DatabaseUnavailable(
                    f"the connection was lost before the answer came: {first_line(error)}; "
                    "it may have been done or not (a start with a key can be repeated)"
                ) from error


def translate(error: BaseException, schema: str) -> RotaError | None:
    """Our own error for one of the database's that a user can do something about."""
    match sqlstate(error):
        case "RT001":
            return KeyBusy(
                f"{first_line(error)}; try again when that transaction has ended, "
                "or start the run inside it with options(on=…)"
            )
        case "RT002":
            return ClaimLost(f"{first_line(error)}: what this attempt does counts for nothing")
        case "RT003":
            return ArgumentError(first_line(error))
        case "RT004":
            return LockLost(f"{first_line(error)}: what this transaction did is undone")
        case "RT005":
            return LeadershipLost(f"{first_line(error)}: what this transaction did is undone")
        case "42P01" | "3F000" | "42883" | "42703" | "42704":
            return SchemaMissing(
                f"schema {schema!r} has not got Rota's tables, or has old ones "
                f"({first_line(error)}); run `rota db migrate`, or await app.migrate()"
            )
        case "42501":
            return DatabaseError(
                f"the database role may not do this: {first_line(error)}; "
                f"grant it usage on schema {schema!r} and its tables, or use the owner's role"
            )
    return None


def connect_error(error: Exception) -> RotaError:
    """Our own error for a connection that could not be made. The server's refusals come as text only."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "ProgrammingError" in names:
        # libpq quotes what it could not read, password and all: we do not.
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
