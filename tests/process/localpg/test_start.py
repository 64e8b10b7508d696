"""One app: the server starts and stops with it."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres
from support.app_processes import execute_sql, fetch_value, has_no_processes, server_pid, wait_until


def test_start_creates_database_and_next_start_keeps_data(new_data_directory: Path) -> None:
    first = LocalPostgres(new_data_directory)
    execute_sql(first.start(), "create table kept as select 42 as answer")
    first.stop()
    assert has_no_processes(new_data_directory)

    with LocalPostgres(new_data_directory) as second:
        assert fetch_value(second.dsn, "select answer from kept") == 42
        assert fetch_value(second.dsn, "show server_encoding") == "UTF8"


def test_start_and_stop_repeated_are_harmless(data_directory: Path) -> None:
    server = LocalPostgres(data_directory, profile="test")
    assert server.start() == server.start()
    assert fetch_value(server.dsn, "select 1") == 1

    server.stop()
    server.stop()
    assert has_no_processes(data_directory)


def test_start_after_stop_works(data_directory: Path) -> None:
    server = LocalPostgres(data_directory, profile="test")
    server.start()
    server.stop()

    assert fetch_value(server.start(), "select 1") == 1
    server.stop()


def test_status_reports_server_before_and_after_start(data_directory: Path) -> None:
    server = LocalPostgres(data_directory, profile="test")
    before = server.status()
    assert (before.running, before.pid, before.dsn, before.detached) == (False, None, None, False)
    assert before.directory == data_directory

    with server:
        status = server.status()
        assert (status.running, status.pid) == (True, server_pid(data_directory))
        assert status.dsn == server.dsn
        assert str(fetch_value(server.dsn, "show server_version")).startswith(status.version)
        assert not status.detached
        if sys.platform == "linux":
            assert status.user_pids == (os.getpid(),)


async def test_dsn_works_with_psycopg_asyncpg_and_sqlalchemy(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test", database="an odd/name%?") as server:
        question = "select current_database()"
        assert fetch_value(server.dsn, question) == "an odd/name%?"

        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval(question) == "an odd/name%?"
        await connection.close()

        engine = create_engine(make_url(server.dsn).set(drivername="postgresql+psycopg"))
        with engine.connect() as session:
            assert session.scalar(text(question)) == "an odd/name%?"
        engine.dispose()


def test_start_ignores_pg_environment_variables(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, value)
    with LocalPostgres(data_directory, profile="test") as server:
        assert fetch_value(server.dsn, "select current_user") == "postgres"
        if sys.platform == "linux":
            assert (
                b"/nowhere" not in Path(f"/proc/{server_pid(data_directory)}/environ").read_bytes()
            )


def test_profile_sets_durability_and_settings_override(data_directory: Path) -> None:
    with LocalPostgres(data_directory) as server:
        assert fetch_value(server.dsn, "show fsync") == "on"
    with LocalPostgres(data_directory, profile="test", settings={"work_mem": "5MB"}) as server:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert fetch_value(server.dsn, f"show {name}") == "off"
        assert fetch_value(server.dsn, "show work_mem") == "5MB"
    with pytest.raises(LocalPostgresError, match="say dev or test"):
        LocalPostgres(data_directory, profile="prod")  # type: ignore[arg-type]


def test_start_joining_server_with_other_settings_is_logged(
    data_directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalPostgres(data_directory, profile="test"):
        with (
            caplog.at_level(logging.WARNING),
            LocalPostgres(data_directory, settings={"work_mem": "5MB"}),
        ):
            assert "work_mem=5MB" in caplog.text


def test_start_failure_shows_log_and_leaves_no_process(data_directory: Path) -> None:
    server = LocalPostgres(data_directory, settings={"no_such_setting": "1"})
    with pytest.raises(LocalPostgresError, match=r'unrecognized .*"no_such_setting"'):
        server.start()
    wait_until(lambda: has_no_processes(data_directory))


def test_start_failed_database_creation_stops_the_server(data_directory: Path) -> None:
    with pytest.raises(LocalPostgresError, match="cannot be had"):
        LocalPostgres(data_directory, profile="test", database="").start()
    assert has_no_processes(data_directory)


def test_tcp_port_is_opened_on_request_and_needs_password(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test") as server:
        assert server.status().port is None
        with pytest.raises(LocalPostgresError, match="no TCP port"):
            _ = server.tcp_dsn
        with pytest.raises(LocalPostgresError, match="without a TCP port"):
            LocalPostgres(data_directory, profile="test", listen=True).start()

    with LocalPostgres(data_directory, profile="test", listen=True) as server:
        assert fetch_value(server.tcp_dsn, "select host(inet_server_addr())") == "127.0.0.1"
        assert fetch_value(server.dsn, "select inet_server_addr()") is None
        port = server.status().port
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=rota")
    with LocalPostgres(data_directory, profile="test", listen=True) as server:
        assert fetch_value(server.tcp_dsn, "select 1") == 1


def test_start_directory_with_other_files_is_refused(new_data_directory: Path) -> None:
    new_data_directory.mkdir()
    (new_data_directory / "letter.txt").write_text("dear")

    with pytest.raises(LocalPostgresError, match="not empty"):
        LocalPostgres(new_data_directory).start()

    assert [path.name for path in new_data_directory.iterdir()] == ["letter.txt"]
    assert not new_data_directory.with_name("pg.new").exists()
