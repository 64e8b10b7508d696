"""`rota tokens`: create, show once, list, revoke; and the audit rows of operators' commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from rota.cli import main
from rota.cli.exit_codes import NOT_FOUND, USAGE_ERROR
from rota.model.access import AccessToken
from rota.testing.server import DatabaseServer
from support.terminal import APPS, CommandResult

Run = Callable[..., CommandResult]


@pytest.fixture(scope="module")
def tokens_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture
def sql(tokens_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(tokens_dsn, autocommit=True) as connection:
        connection.execute("truncate rota.access_tokens, rota.audit")
        yield connection


@pytest.fixture
def rota(
    tokens_dsn: str,
    sql: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Run:
    monkeypatch.setenv("ROTA_DATABASE_URL", tokens_dsn)
    monkeypatch.chdir(APPS)
    monkeypatch.syspath_prepend(str(APPS))

    def run(*words: str) -> CommandResult:
        monkeypatch.delitem(sys.modules, "shop", raising=False)
        capfd.readouterr()
        code = main.run(list(words))
        return CommandResult(code, *capfd.readouterr())

    return run


def audited(sql: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    found = sql.execute("select action, subject from rota.audit order by id").fetchall()
    return [(action, subject) for action, subject in found]


def test_tokens_command_without_tokens_prints_hint(rota: Run) -> None:
    assert "create one with `rota tokens create NAME`" in rota("tokens").out
    assert "no tokens yet" in rota("tokens", "list", "--all").out
    assert rota("tokens", "--json").json()["tokens"] == []


def test_tokens_create_prints_token_once_and_alone_on_stdout(
    rota: Run, sql: psycopg.Connection[Any]
) -> None:
    made = rota("tokens", "create", "grafana", "--role", "viewer", "--expires", "30d")
    assert made.code == 0
    token = AccessToken.parse(made.out.strip())
    assert token is not None
    assert "is not shown again" in made.err
    assert token.text not in made.err

    listed = rota("tokens")
    assert (token.id in listed.out, "grafana" in listed.out) == (True, True)
    [line] = rota("tokens", "list", "--json").json()["tokens"]
    assert (line["name"], line["role"], line["state"]) == ("grafana", "viewer", "active")
    assert token.text not in listed.out + str(line)
    [[digest, days]] = sql.execute(
        "select digest, extract(day from expires - created)::int from rota.access_tokens"
    ).fetchall()
    assert (digest, days) == (token.digest, 30)
    assert audited(sql) == [("create token", token.id)]


def test_tokens_create_token_expires_unless_never_is_given(rota: Run) -> None:
    usual = rota("tokens", "create", "ann", "--json").json()
    lasting = rota("tokens", "create", "ci", "--expires", "never", "--json").json()
    assert usual["expires"] is not None
    assert lasting["expires"] is None
    assert AccessToken.parse(lasting["token"]) is not None


def test_tokens_list_revoked_token_needs_all_option(
    rota: Run, sql: psycopg.Connection[Any]
) -> None:
    id = rota("tokens", "create", "ann", "--role", "admin", "--json").json()["id"]
    done = rota("tokens", "revoke", id)
    assert (done.code, f"token {id} of ann (admin)" in done.out) == (0, True)
    assert rota("tokens", "--json").json()["tokens"] == []
    [line] = rota("tokens", "--all", "--json").json()["tokens"]
    assert line["state"] == "revoked"
    again = rota("tokens", "revoke", id)
    assert (again.code, "was revoked already" in again.err) == (NOT_FOUND, True)
    assert rota("tokens", "revoke", "nosuch").code == NOT_FOUND
    assert audited(sql) == [("create token", id), ("revoke token", id)]


def test_tokens_list_expired_token_needs_all_option(
    rota: Run, sql: psycopg.Connection[Any]
) -> None:
    rota("tokens", "create", "ann", "--expires", "1h")
    sql.execute("update rota.access_tokens set expires = now() - interval '1 s'")
    assert rota("tokens", "--json").json()["tokens"] == []
    assert [each["state"] for each in rota("tokens", "--all", "--json").json()["tokens"]] == [
        "expired"
    ]
    assert "expired" in rota("tokens", "--all").out


@pytest.mark.parametrize(
    "words",
    [
        ("create", "ann", "--role", "king"),
        ("create", ""),
        ("create", "a\nb"),
        ("create", "a" * 201),
        ("create", "ann", "--expires", "0"),
        ("create", "ann", "--expires", "20000d"),
    ],
)
def test_tokens_create_invalid_argument_is_refused(
    rota: Run, sql: psycopg.Connection[Any], words: tuple[str, ...]
) -> None:
    assert rota("tokens", *words).code == USAGE_ERROR
    assert audited(sql) == []


def test_audit_actions_of_commands_are_recorded_with_operator(
    rota: Run, sql: psycopg.Connection[Any]
) -> None:
    run = rota("start", "-a", "shop:app", "echo", "value=1", "--delay", "1h").out.strip()
    for words in (("signal", run, "answer"), ("cancel", run), ("retry", run)):
        assert rota(*words).code == 0, words
    assert audited(sql) == [
        ("start run", run),
        ("signal run", run),
        ("cancel run", run),
        ("retry run", run),
    ]
    [[who]] = sql.execute("select distinct operator from rota.audit").fetchall()
    assert "@" in who
    assert rota("audit", "--json").json()["entries"][0]["action"] == "retry run"
