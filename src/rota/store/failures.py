"""What a database error means: worth another try, or whose mistake it is.

Errors are judged by SQLSTATE, so that the driver on a user's connection does not matter.
"""

from __future__ import annotations

from rota.errors import (
    ArgumentError,
    DatabaseError,
    DatabaseUnavailable,
    KeyBusy,
    RotaError,
    SchemaMissing,
)

# Serialisation, deadlock, lock timeout, shutdown and start-up, a node that turned read-only, too many
# connections: the same call may go through later.
_PASSING = {"40001", "40P01", "55P03", "25006", "53300"}
_PASSING_CLASSES = ("08", "57P0")


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of an error of any driver, through whatever wraps it; "" where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        for name in ("sqlstate", "pgcode"):
            code = getattr(seen, name, None)
            if isinstance(code, str):
                return code
        origin = getattr(seen, "orig", None)
        seen = origin if isinstance(origin, BaseException) else seen.__cause__
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
        case "28P01" | "28000" | "3D000":
            return DatabaseError(f"cannot connect: {first_line(error)}; check ROTA_DATABASE_URL")
    return None


def first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0]
