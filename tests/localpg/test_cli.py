"""`rota pg` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli.pg import pg
from rota.localpg import LocalPostgres, binaries

from .apps import App, ask, eventually, nothing_left

PG = [sys.executable, "-c", "from rota.cli.pg import pg; pg()"]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(pg, list(map(str, words)))


def test_start_keeps_it_up_until_stop(made: Path) -> None:
    assert run("status", "--directory", made).exit_code == 3

    dsn = run("start", "--directory", made).output.strip()
    assert ask(dsn, "select 1") == 1
    told = run("status", "--directory", made)
    assert told.exit_code == 0
    assert "running: PostgreSQL" in told.output
    assert "kept up" in told.output

    assert run("stop", "--directory", made).output == "stopped\n"
    assert nothing_left(made)
    assert run("stop", "--directory", made).output == "not running\n"


def test_status_as_json_is_for_programs(made: Path) -> None:
    down = run("status", "--json", "--directory", made)
    assert (down.exit_code, json.loads(down.output)["running"]) == (3, False)

    with LocalPostgres(made, profile="test") as server:
        up = run("status", "--json", "--directory", made)
        assert up.exit_code == 0
        told = json.loads(up.output)
        assert told["dsn"] == server.dsn
        assert told["directory"] == str(made)
        assert not told["stays_up"]


def test_stop_waits_for_apps_unless_told_not_to(made: Path, app: Callable[..., App]) -> None:
    run("start", "--directory", made)
    one = app(made)
    one.started()

    assert "in use" in run("stop", "--directory", made).output
    assert run("status", "--directory", made).exit_code == 0

    assert run("stop", "--now", "--directory", made).output == "stopped\n"
    assert nothing_left(made)


def test_start_with_a_port_prints_a_dsn_for_it(made: Path) -> None:
    dsn = run("start", "--listen", "--directory", made).output.strip()
    assert "@127.0.0.1:" in dsn
    assert ask(dsn, "select 1") == 1
    run("stop", "--directory", made)


def test_psql_starts_the_server_and_takes_it_along_when_it_ends(made: Path) -> None:
    question = "select current_database()"
    done = subprocess.run(
        [*PG, "psql", "--directory", str(made), "--database", "other", "-AtXc", question],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("other\n", "")
    eventually(lambda: nothing_left(made))


def test_psql_holds_the_server_while_it_runs(made: Path) -> None:
    with subprocess.Popen(
        [*PG, "psql", "--directory", str(made), "-AtX"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as psql:
        assert psql.stdin
        assert psql.stdout
        psql.stdin.write("select 'hello';\n")
        psql.stdin.flush()
        assert psql.stdout.readline() == "hello\n"
        status = LocalPostgres(made).status()
        assert status.running
        assert status.user_pids in (None, (psql.pid,))
        psql.stdin.close()
    eventually(lambda: nothing_left(made))


def test_psql_says_what_to_do_when_there_is_none(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalPostgres, "find_program", lambda self, name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    told = run("psql", "--directory", made)
    assert told.exit_code == 1
    assert "install a client" in told.output
    assert nothing_left(made)


def test_errors_are_told_without_a_traceback(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEEL_PACKAGES", ())
    monkeypatch.setattr(binaries, "INSTALL_PATTERNS", ())
    monkeypatch.setenv("PATH", str(fresh))
    for command in ("start", "stop", "status", "psql"):
        told = run(command, "--directory", fresh)
        assert told.exit_code == 1
        assert "no PostgreSQL was found" in told.output
        assert "Traceback" not in told.output
