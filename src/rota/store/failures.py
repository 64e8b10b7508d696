"""What a database error means: worth another try, or whose mistake it is.

Errors are judged by SQLSTATE, so that the driver on a user's connection does not matter.
"""

from __future__ import annotations

import re

from rota.errors import (
    ArgumentError,
    DatabaseError,
    DatabaseUnavailable,
    KeyBusy,
    RotaError,
    SchemaMissing,
    SettingsError,
)

# Serialisation, deadlock, lock timeout, shutdown and start-up, a node that turned read-only, too many
# connections: the same call may go through later.
_PASSING = {"40001", "40P01", "55P03", "25006", "53300"}
_PASSING_CLASSES = ("08", "57P0")

# Trying again does not help when the server has understood and says no.
_REFUSED = re.compile(
    r"authentication failed|does not exist|no pg_hba\.conf entry|no password supplied|not permitted"
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


def is_passing(error: BaseException) -> bool:
    """Whether trying again can help: the connection broke, or the server says not now."""
    if isinstance(error, DatabaseUnavailable):
        return True
    code = sqlstate(error)
    if code:
        return code in _PASSING or code.startswith(_PASSING_CLASSES)
    # A driver's error without a code is one about the connection itself.
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError) or "OperationalError" in names or "InterfaceError" in names


class in_our_words:
    """Errors that leave the block and that a user can act on are said in our words."""

    __slots__ = ("_schema",)

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            explained = explain(error, self._schema)
            if explained is not None:
                raise explained from error


def explain(error: BaseException, schema: str) -> RotaError | None:
    """Our own error for one of the database's that a user can do something about."""
    match sqlstate(error):
        case "RT001":
            return KeyBusy(
                f"{first_line(error)}; try again when that transaction has ended, "
                "or start the run inside it with using(on=…)"
            )
        case "RT003":
            return ArgumentError(first_line(error))
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


def unconnected(error: Exception) -> RotaError:
    """Our own error for a connection that could not be made. The server's refusals come as text only."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if "ProgrammingError" in names:
        # libpq quotes what it could not read, password and all: we do not.
        return SettingsError(
            "the DSN cannot be read; write it as postgresql://user:password@host/name"
        )
    reason = first_line(error)
    if _REFUSED.search(reason):
        return DatabaseError(f"the database refuses us: {reason}; check ROTA_DATABASE_URL")
    return DatabaseUnavailable(
        f"cannot reach the database: {reason}; check ROTA_DATABASE_URL, "
        "and that PostgreSQL is running there"
    )


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
