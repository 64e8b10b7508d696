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
from support.app_processes import App, fetch_value, has_no_processes, wait_until

PG = [sys.executable, "-c", "from rota.cli.pg import pg; pg()"]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(pg, list(map(str, words)))


def test_pg_start_runs_server_until_stop(data_directory: Path) -> None:
    assert run("status", "--directory", data_directory).exit_code == 3

    dsn = run("start", "--directory", data_directory).output.strip()
    assert fetch_value(dsn, "select 1") == 1
    told = run("status", "--directory", data_directory)
    assert told.exit_code == 0
    assert "running: PostgreSQL" in told.output
    assert "kept up" in told.output

    assert run("stop", "--directory", data_directory).output == "stopped\n"
    assert has_no_processes(data_directory)
    assert run("stop", "--directory", data_directory).output == "not running\n"


def test_pg_status_json_reports_server_state(data_directory: Path) -> None:
    down = run("status", "--json", "--directory", data_directory)
    assert (down.exit_code, json.loads(down.output)["running"]) == (3, False)

    with LocalPostgres(data_directory, profile="test") as server:
        up = run("status", "--json", "--directory", data_directory)
        assert up.exit_code == 0
        told = json.loads(up.output)
        assert told["dsn"] == server.dsn
        assert told["directory"] == str(data_directory)
        assert not told["stays_up"]


def test_pg_stop_with_running_apps_needs_now_option(
    data_directory: Path, start_app: Callable[..., App]
) -> None:
    run("start", "--directory", data_directory)
    one = start_app(data_directory)
    one.started()

    assert "in use" in run("stop", "--directory", data_directory).output
    assert run("status", "--directory", data_directory).exit_code == 0

    assert run("stop", "--now", "--directory", data_directory).output == "stopped\n"
    assert has_no_processes(data_directory)


def test_pg_start_listen_prints_tcp_dsn(data_directory: Path) -> None:
    dsn = run("start", "--listen", "--directory", data_directory).output.strip()
    assert "@127.0.0.1:" in dsn
    assert fetch_value(dsn, "select 1") == 1
    run("stop", "--directory", data_directory)


def test_pg_psql_starts_and_stops_the_server(data_directory: Path) -> None:
    question = "select current_database()"
    done = subprocess.run(
        [*PG, "psql", "--directory", str(data_directory), "--database", "other", "-AtXc", question],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("other\n", "")
    wait_until(lambda: has_no_processes(data_directory))


def test_pg_psql_keeps_server_while_running(data_directory: Path) -> None:
    with subprocess.Popen(
        [*PG, "psql", "--directory", str(data_directory), "-AtX"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as psql:
        assert psql.stdin
        assert psql.stdout
        psql.stdin.write("select 'hello';\n")
        psql.stdin.flush()
        assert psql.stdout.readline() == "hello\n"
        status = LocalPostgres(data_directory).status()
        assert status.running
        assert status.user_pids in (None, (psql.pid,))
        psql.stdin.close()
    wait_until(lambda: has_no_processes(data_directory))


def test_pg_psql_without_client_prints_hint(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalPostgres, "find_program", lambda self, name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    told = run("psql", "--directory", data_directory)
    assert told.exit_code == 1
    assert "install a client" in told.output
    assert has_no_processes(data_directory)


def test_pg_commands_without_binaries_print_error_without_traceback(
    new_data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "WHEEL_PACKAGES", ())
    monkeypatch.setattr(binaries, "INSTALL_PATTERNS", ())
    monkeypatch.setenv("PATH", str(new_data_directory))
    for command in ("start", "stop", "status", "psql"):
        told = run(command, "--directory", new_data_directory)
        assert told.exit_code == 1
        assert "no PostgreSQL was found" in told.output
        assert "Traceback" not in told.output
