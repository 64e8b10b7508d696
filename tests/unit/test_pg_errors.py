"""Classification of database errors from every supported driver."""

from __future__ import annotations

from types import SimpleNamespace

import asyncpg
import psycopg
import pytest
import sqlalchemy.exc

from rota.errors import (
    ArgumentError,
    DatabaseError,
    DatabaseUnavailable,
    KeyBusy,
    RotaError,
    SchemaMissing,
    SettingsError,
)
from rota.store.pg_errors import (
    connect_error,
    first_line,
    is_connection_lost,
    is_safe_to_repeat,
    is_transient,
    is_unstorable,
    may_pass,
    sqlstate,
    translate,
)

PASSING = [
    *("40001", "40P01", "55P03", "25006", "53300"),
    *("53100", "53200", "53400", "58030", "58000"),
    *("57P01", "57P02", "57P03", "57P05", "08000", "08006", "08P01"),
]
LASTING = ["23505", "22P05", "42601", "57014", "22008", "RT003", "XX000"]


def psycopg_error(code: str) -> psycopg.Error:
    try:
        return psycopg.errors.lookup(code)("said\nmore")
    except KeyError:
        error = psycopg.errors.DatabaseError("said\nmore")
        error.sqlstate = code
        return error


def asyncpg_error(code: str) -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"C": code, "M": "said\nmore"})


def sqlalchemy_error(code: str) -> sqlalchemy.exc.DBAPIError:
    """Return SQLAlchemy's error, which wraps the driver's."""
    return sqlalchemy.exc.DBAPIError("select", {}, psycopg_error(code))


def django_error(code: str) -> Exception:
    """Return Django's error, raised from the driver's."""
    error = Exception("said")
    error.__cause__ = psycopg_error(code)
    return error


DRIVERS = [psycopg_error, asyncpg_error, sqlalchemy_error, django_error]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("code", ["40001", "23505", "RT001"])
def test_sqlstate_is_read_from_errors_of_every_driver(driver: object, code: str) -> None:
    assert sqlstate(driver(code)) == code  # type: ignore[operator]


def test_sqlstate_of_error_without_code_is_empty() -> None:
    assert sqlstate(ValueError("x")) == ""
    assert sqlstate(psycopg.OperationalError("the connection is lost")) == ""


@pytest.mark.parametrize("code", PASSING)
def test_is_transient_with_temporary_server_error_is_true(code: str) -> None:
    assert is_transient(psycopg_error(code))


@pytest.mark.parametrize("code", LASTING)
def test_is_transient_with_lasting_server_error_is_false(code: str) -> None:
    assert not is_transient(psycopg_error(code))


def test_is_transient_with_broken_connection_is_true() -> None:
    for error in (
        psycopg.OperationalError("server closed the connection unexpectedly"),
        psycopg.InterfaceError("the connection is closed"),
        asyncpg.InterfaceError("connection is closed"),
        ConnectionResetError(),
        TimeoutError(),
        DatabaseUnavailable("away"),
    ):
        assert is_transient(error), error


def test_is_transient_with_program_error_is_false() -> None:
    for error in (ValueError(), KeyError(), psycopg.ProgrammingError("x"), RotaError("x")):
        assert not is_transient(error), error


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("RT001", KeyBusy, r"said; try again when that transaction has ended"),
        ("RT003", ArgumentError, "said"),
        ("42P01", SchemaMissing, "rota db migrate"),
        ("3F000", SchemaMissing, "rota db migrate"),
        ("42501", DatabaseError, "may not do this: said; grant it usage on schema 'other'"),
    ],
)
def test_translate_actionable_error_gives_rota_error_with_remedy(
    code: str, kind: type[RotaError], message: str
) -> None:
    explained = translate(psycopg_error(code), "other")

    assert type(explained) is kind
    assert message in str(explained) or pytest.fail(str(explained))
    assert "more" not in str(explained)


def test_translate_unrelated_error_returns_none() -> None:
    assert translate(psycopg_error("23505"), "rota") is None
    assert translate(ValueError(), "rota") is None


def test_first_line_returns_only_first_nonblank_line() -> None:
    assert first_line(Exception("\n one \ntwo")) == "one "


# Failed connections: the server's refusals arrive as text only


@pytest.mark.parametrize(
    "reason",
    [
        'FATAL:  password authentication failed for user "u"',
        'FATAL:  database "nope" does not exist',
        'FATAL:  no pg_hba.conf entry for host "h"',
    ],
)
def test_connect_error_refused_by_server_is_not_transient(reason: str) -> None:
    error = connect_error(psycopg.OperationalError(f"connection failed: {reason}"))

    assert type(error) is DatabaseError
    assert reason in str(error)
    assert not is_transient(error)


def test_connect_error_without_server_is_transient() -> None:
    error = connect_error(psycopg.OperationalError("connection failed: Connection refused"))

    assert type(error) is DatabaseUnavailable
    assert is_transient(error)


def test_connect_error_unreadable_dsn_hides_the_password() -> None:
    with pytest.raises(psycopg.ProgrammingError) as unreadable:
        psycopg.conninfo.conninfo_to_dict("host=h password=secret nonsense")

    error = connect_error(unreadable.value)

    assert type(error) is SettingsError
    assert "secret" not in str(error)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("code", ["22P02", "22021", "23514", "54000", "54001"])
def test_is_unstorable_with_an_error_about_the_row_is_true(driver: object, code: str) -> None:
    assert is_unstorable(driver(code))  # type: ignore[operator]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("code", [*PASSING, "42501", "XX000", "P0001", "23505", "57014"])
def test_is_unstorable_with_an_error_of_the_server_is_false(driver: object, code: str) -> None:
    assert not is_unstorable(driver(code))  # type: ignore[operator]


def test_is_unstorable_with_value_refused_by_driver_is_true() -> None:
    assert is_unstorable(psycopg.DataError("PostgreSQL text fields cannot contain NUL"))
    assert not is_unstorable(psycopg.OperationalError("the connection is lost"))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "25006", "53100", "53300", "58030"])
def test_is_safe_to_repeat_after_rollback_is_true(driver: object, code: str) -> None:
    assert is_safe_to_repeat(driver(code))  # type: ignore[operator]


@pytest.mark.parametrize("code", ["57P01", "08006", "57014", "XX000", "23505", "42501"])
def test_is_safe_to_repeat_with_unknown_or_lasting_error_is_false(code: str) -> None:
    assert not is_safe_to_repeat(psycopg_error(code))


@pytest.mark.parametrize("severity", ["FATAL", "PANIC"])
def test_is_safe_to_repeat_with_ended_session_is_false(severity: str) -> None:
    """A commit before the session ended may have succeeded; some poolers answer so with 58000."""

    class EndedSession(psycopg.errors.SystemError):
        diag = SimpleNamespace(severity_nonlocalized=severity)  # type: ignore[assignment]

    error = EndedSession("error receiving data from server")
    assert sqlstate(error) == "58000"
    assert not is_safe_to_repeat(error)
    assert is_connection_lost(error)


def test_may_pass_adds_timeouts_and_internal_errors() -> None:
    assert all(may_pass(psycopg_error(code)) for code in (*PASSING, "57014", "XX000", "XX001"))
    assert not any(may_pass(psycopg_error(code)) for code in ("23505", "42501", "22P02", "RT003"))


@pytest.mark.parametrize("code", ["53100", "58030", "40001"])
def test_is_connection_lost_with_server_answer_is_false(code: str) -> None:
    assert not is_connection_lost(psycopg_error(code))
    assert is_connection_lost(psycopg_error("57P01"))
