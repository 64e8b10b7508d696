"""A user's mistake is one line on stderr and an exit code; a bug is a traceback."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from rota.cli.exit_codes import FAILED, NO_DATABASE, NOT_FOUND, USAGE_ERROR
from rota.testing.server import DatabaseServer
from support.cli_fixtures import Rota
from support.newer_migration import NEWER_MIGRATION
from support.terminal import Terminal

START = ("start", "-a", "shop:app")
NOBODY = "postgresql://127.0.0.1:1/x"

MISTAKES = {
    "an unknown task": ((*START, "resise"), "did you mean 'resize'?"),
    "an unknown task, far off": ((*START, "x"), "it has: apart, echo, perilous, resize"),
    "an argument of the wrong type": ((*START, "resize", "path=a", "width=b"), "in width"),
    "a missing argument": ((*START, "resize"), "path"),
    "an argument nobody takes": ((*START, "resize", "size=1"), "takes no argument 'size'"),
    "an argument without a value": ((*START, "resize", "a.png"), "write NAME=VALUE"),
    "arguments that are not JSON": ((*START, "resize", "--args", "{path"), "--args is not JSON"),
    "arguments that are not numbers": ((*START, "echo", "--args", '{"value": NaN}'), "NaN"),
    "arguments that are a list": ((*START, "resize", "--args", "[1]"), "must be a JSON object"),
    "a priority out of range": ((*START, "resize", "path=a", "--priority", "10"), "0<=x<=9"),
    "a delay that is none": ((*START, "resize", "path=a", "--delay", "soon"), "write 90, 1.5s"),
    "a time-out for nothing": (
        (*START, "resize", "path=a", "--timeout", "1"),
        "--timeout needs --wait",
    ),
    "a queue that cannot be": (("start", "x", "--queue", "a b"), "cannot be a queue's name"),
    "a task that cannot be": (("start", "a b"), "cannot be a task's name"),
    "a module that is not there": (("worker", "shopp:app"), "there is no module 'shopp' in "),
    "a package that is not there": (("worker", "shopp.apps:app"), "there is no module 'shopp' in "),
    "an app that is not there": (("worker", "shop:ap"), "has no 'ap'; there is shop:app"),
    "something that is no app": (("worker", "shop:port"), "shop:port is a int, not a Rota app"),
    "a class instead of an app": (("worker", "shop:Rota"), "shop:Rota is a class"),
    "half a name": (("worker", "shop"), "write MODULE:APP, such as shop:app"),
    "a file for a module": (("worker", "./shop.py:app"), "name its module: shop:app"),
    "no app at all": (("worker",), "no app is given"),
    "an app without tasks": (("worker", "shop:empty"), "knows no task"),
    "a schema that cannot be": (("--schema", "No Way", "runs"), "schema name 'No Way'"),
    "an unknown option": (("runs", "--frob"), "see `rota runs --help`"),
    "an unknown command": (("frob",), "no such command 'frob'"),
    "an unknown state": (("runs", "--state", "lost"), "'lost' is not one of"),
    "a run that is no number": (("show", "x"), "'x' is not a valid run's id"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_command_mistake_prints_one_line_and_exits_with_2(rota: Rota, mistake: str) -> None:
    words, expected = MISTAKES[mistake]

    done = rota(*words)

    assert done.code == USAGE_ERROR
    assert done.out == ""
    assert expected in done.complaint


@pytest.mark.parametrize("command", ["show", "cancel", "retry"])
def test_command_missing_run_exits_with_3(rota: Rota, command: str) -> None:
    done = rota(command, "7")

    assert done.code == NOT_FOUND
    assert "there is no run 7" in done.complaint


@pytest.mark.parametrize(
    "words",
    [
        ("runs",),
        ("db", "status"),
        ("db", "migrate"),
        ("worker", "shop:app"),
        ("cancel", "1"),
    ],
    ids=" ".join,
)
def test_command_unreachable_database_exits_with_4(rota: Rota, words: tuple[str, ...]) -> None:
    done = rota("--dsn", NOBODY, *words)

    assert done.code == NO_DATABASE
    assert "Connection refused" in done.complaint
    assert "check --dsn" in done.complaint


def test_command_missing_database_is_named(rota: Rota, shared_dsn: str) -> None:
    name = shared_dsn.split("?")[0].rpartition("/")[2]

    done = rota("runs", "--dsn", shared_dsn.replace(name, "nowhere"))

    assert done.code == NO_DATABASE
    assert 'database "nowhere" does not exist' in done.complaint


@pytest.mark.parametrize("dsn", ["mysql://me:secret@host/x", "postgresql://me:secret%zz@host/x"])
def test_command_invalid_dsn_is_not_printed(rota: Rota, dsn: str) -> None:
    done = rota("runs", "--dsn", dsn)

    assert done.code == USAGE_ERROR
    assert "the DSN cannot be read" in done.complaint
    assert "secret" not in done.err


@pytest.mark.parametrize("words", [("runs",), ("queues", "--json"), ("worker", "shop:app")])
def test_command_missing_schema_prints_the_migrate_command(
    rota: Rota, words: tuple[str, ...]
) -> None:
    done = rota("--schema", "elsewhere", *words)

    assert done.code == NO_DATABASE
    assert "run `rota db migrate`" in done.complaint


def test_command_without_database_prints_three_remedies(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROTA_DATABASE_URL", "PGHOST", "PGDATABASE", "PGSERVICE", "PGHOSTADDR"):
        monkeypatch.delenv(name, raising=False)

    done = rota("runs")

    assert done.code == USAGE_ERROR
    for way in ("--dsn", "ROTA_DATABASE_URL", "-a MODULE:APP"):
        assert way in done.complaint


def test_command_unreadable_dsn_file_is_named(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ROTA_DATABASE_URL")
    monkeypatch.setenv("ROTA_DATABASE_URL_FILE", str(tmp_path / "gone"))

    done = rota("runs")

    assert done.code == USAGE_ERROR
    assert str(tmp_path / "gone") in done.complaint


def test_command_invalid_setting_is_named(rota: Rota, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_BATCH", "many")

    done = rota("runs")

    assert done.code == USAGE_ERROR
    assert "ROTA_BATCH must be a whole number" in done.complaint


def test_command_newer_schema_is_refused(rota: Rota, rota_dsn: str) -> None:
    with psycopg.connect(rota_dsn) as connection:
        connection.execute(NEWER_MIGRATION, [9000, True])

    assert rota("runs", "--dsn", rota_dsn).code == NO_DATABASE
    status = rota("db", "status", "--dsn", rota_dsn)
    assert status.code == NO_DATABASE
    assert "too new" in status.out
    assert "Upgrade Rota" in status.out


def test_command_edited_migration_is_refused(rota: Rota, rota_dsn: str) -> None:
    with psycopg.connect(rota_dsn) as connection:
        connection.execute("update rota.migrations set checksum = 'other' where version = 2")

    for command in (["runs"], ["db", "migrate"], ["db", "migrate", "--print"]):
        refused = rota(*command, "--dsn", rota_dsn)
        assert refused.code == NO_DATABASE
        assert "edited after it ran" in refused.complaint
    status = rota("db", "status", "--dsn", rota_dsn)
    assert status.code == NO_DATABASE
    assert "changed" in status.out


def test_command_newer_schema_without_breaking_migration_works(rota: Rota, rota_dsn: str) -> None:
    with psycopg.connect(rota_dsn) as connection:
        connection.execute(NEWER_MIGRATION, [9000, False])

    assert rota("runs", "--dsn", rota_dsn).code == 0
    migrated = rota("db", "migrate", "--dsn", rota_dsn)
    assert (migrated.code, "this version can use them" in migrated.out) == (0, True)
    status = rota("db", "status", "--dsn", rota_dsn)
    assert (status.code, "9000_newer" in status.out) == (0, True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("raises:app", "ZeroDivisionError: a bug of the module's own"),
        ("needs:app", "No module named 'not_installed_anywhere'"),
    ],
)
def test_worker_command_import_error_keeps_its_traceback(
    shared_dsn: str, name: str, expected: str
) -> None:
    done = Terminal(shared_dsn).run("worker", name)

    assert done.code == FAILED
    assert done.err.startswith("Traceback")
    assert expected in done.err
    assert "rota/cli" not in done.err


def test_db_migrate_empty_database_creates_the_schema(
    rota: Rota, rota_server: DatabaseServer
) -> None:
    with rota_server.empty_database() as dsn:
        missing = rota("db", "status", "--dsn", dsn)
        assert missing.code == NO_DATABASE
        assert "run `rota db migrate`" in missing.out

        made = rota("db", "migrate", "--dsn", dsn)
        assert made.code == 0
        assert "applied 0001_jobs" in made.out

        again = rota("db", "migrate", "--dsn", dsn)
        assert again.out == "schema 'rota' is up to date\n"
        assert rota("db", "status", "--dsn", dsn).code == 0
