"""Remains of a crash do not prevent the next start, and committed data survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from rota.localpg import LocalPostgres, watcher
from rota.localpg.locks import is_free
from rota.localpg.paths import ServerPaths
from support.app_processes import (
    App,
    execute_sql,
    fetch_value,
    has_no_processes,
    on_linux,
    processes,
    server_pid,
    wait_until,
)

Start = Callable[..., App]


def test_restart_after_postmaster_kill_recovers_committed_data(data_directory: Path) -> None:
    with LocalPostgres(data_directory) as server:
        execute_sql(
            server.dsn, "drop table if exists kept; create table kept as select 42 as answer"
        )
        before = server_pid(data_directory)

        server.kill()
        assert not server.status().running
        server.restart()

        assert server_pid(data_directory) != before
        assert fetch_value(server.dsn, "select answer from kept") == 42


def test_start_after_postmaster_kill_works_in_the_same_app(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test") as server:
        server.kill()
        assert fetch_value(server.start(), "select 1") == 1
    assert has_no_processes(data_directory)


def test_start_after_postmaster_kill_works_in_another_app(
    data_directory: Path, start_app: Start
) -> None:
    first = start_app(data_directory, profile="dev")
    execute_sql(
        first.started(), "drop table if exists kept; create table kept as select 42 as answer"
    )
    os.kill(server_pid(data_directory), signal.SIGKILL)

    second = start_app(data_directory, profile="dev")
    assert fetch_value(second.started(), "select answer from kept") == 42

    first.stop()
    second.stop()
    assert has_no_processes(data_directory)


def test_restart_immediate_stop_recovers_committed_data(data_directory: Path) -> None:
    with LocalPostgres(data_directory) as server:
        execute_sql(
            server.dsn, "drop table if exists kept; create table kept as select 42 as answer"
        )
        server.restart(immediately=True)
        assert fetch_value(server.dsn, "select answer from kept") == 42


@on_linux
def test_restart_after_kill_ends_a_busy_backend(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test") as server:
        busy = psycopg.connect(server.dsn, autocommit=True)

        def spin() -> None:
            with pytest.raises(psycopg.OperationalError):
                busy.execute("do $$ begin loop end loop; end $$")

        thread = Thread(target=spin)
        thread.start()
        running = "select count(*) from pg_stat_activity where query like 'do %' and state='active'"
        wait_until(lambda: fetch_value(server.dsn, running) == 1)

        server.kill()
        server.restart()

        assert fetch_value(server.dsn, "select 1") == 1
        thread.join(60)
        busy.close()


def test_status_reused_pid_is_not_taken_for_a_server(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test") as server:
        server.kill()
        for file in (data_directory / "postmaster.pid", data_directory / ".s.PGSQL.5432.lock"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join([str(os.getpid()), *lines[1:]]))
        assert not server.status().running

        assert fetch_value(server.restart(), "select 1") == 1


def test_start_after_interrupted_initdb_succeeds(
    new_data_directory: Path, paused_binaries: Path, start_app: Start
) -> None:
    unlucky = start_app(new_data_directory, env={"ROTA_PG_BIN": str(paused_binaries)})
    half = new_data_directory.with_name("pg.new") / "PG_VERSION"
    wait_until(half.exists)
    unlucky.kill()
    for pid in processes(half.parent):
        os.kill(pid, signal.SIGKILL)

    with LocalPostgres(new_data_directory, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
    assert not new_data_directory.with_name("pg.new").exists()


def test_start_waits_for_initdb_of_killed_app(
    new_data_directory: Path, paused_binaries: Path, start_app: Start
) -> None:
    unlucky = start_app(new_data_directory, env={"ROTA_PG_BIN": str(paused_binaries)})
    wait_until((new_data_directory.with_name("pg.new") / "PG_VERSION").exists)

    unlucky.kill()
    assert processes(new_data_directory.with_name("pg.new"))
    assert not is_free(ServerPaths(new_data_directory).control_lock)

    (paused_binaries / "go").touch()
    with LocalPostgres(new_data_directory, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1


def test_watcher_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_LOG_BYTES", 1000)
    monkeypatch.setattr(watcher, "LOG_TAIL_BYTES", 100)
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as server:  # the server appends to a file it keeps open
        server.write(b"old " * 500)
        watcher._trim_log(str(log))
        server.write(b"new")

    assert log.read_bytes() == b"old " * 25 + b"new"
