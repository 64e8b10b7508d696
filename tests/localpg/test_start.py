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

from .apps import ask, eventually, nothing_left, pid_of, tell


def test_the_first_start_makes_a_database_and_the_second_finds_it_again(fresh: Path) -> None:
    first = LocalPostgres(fresh)
    tell(first.start(), "create table kept as select 42 as answer")
    first.stop()
    assert nothing_left(fresh)

    with LocalPostgres(fresh) as second:
        assert ask(second.dsn, "select answer from kept") == 42
        assert ask(second.dsn, "show server_encoding") == "UTF8"


def test_starting_twice_and_stopping_twice_is_harmless(made: Path) -> None:
    server = LocalPostgres(made, profile="test")
    assert server.start() == server.start()
    assert ask(server.dsn, "select 1") == 1

    server.stop()
    server.stop()
    assert nothing_left(made)


def test_a_stopped_server_can_be_started_again(made: Path) -> None:
    server = LocalPostgres(made, profile="test")
    server.start()
    server.stop()

    assert ask(server.start(), "select 1") == 1
    server.stop()


def test_status_says_what_is_so(made: Path) -> None:
    server = LocalPostgres(made, profile="test")
    before = server.status()
    assert (before.running, before.pid, before.dsn, before.detached) == (False, None, None, False)
    assert before.directory == made

    with server:
        status = server.status()
        assert (status.running, status.pid) == (True, pid_of(made))
        assert status.dsn == server.dsn
        assert str(ask(server.dsn, "show server_version")).startswith(status.version)
        assert not status.detached
        if sys.platform == "linux":
            assert status.user_pids == (os.getpid(),)


async def test_psycopg_asyncpg_and_sqlalchemy_understand_the_dsn(made: Path) -> None:
    with LocalPostgres(made, profile="test", database="an odd/name%?") as server:
        question = "select current_database()"
        assert ask(server.dsn, question) == "an odd/name%?"

        connection = await asyncpg.connect(server.dsn)
        assert await connection.fetchval(question) == "an odd/name%?"
        await connection.close()

        engine = create_engine(make_url(server.dsn).set(drivername="postgresql+psycopg"))
        with engine.connect() as session:
            assert session.scalar(text(question)) == "an odd/name%?"
        engine.dispose()


def test_variables_meant_for_other_servers_have_no_effect(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGUSER": "nobody"}.items():
        monkeypatch.setenv(name, value)
    with LocalPostgres(made, profile="test") as server:
        assert ask(server.dsn, "select current_user") == "postgres"
        if sys.platform == "linux":
            assert b"/nowhere" not in Path(f"/proc/{pid_of(made)}/environ").read_bytes()


def test_profiles_decide_what_a_crash_may_cost_and_settings_win(made: Path) -> None:
    with LocalPostgres(made) as server:
        assert ask(server.dsn, "show fsync") == "on"
    with LocalPostgres(made, profile="test", settings={"work_mem": "5MB"}) as server:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            assert ask(server.dsn, f"show {name}") == "off"
        assert ask(server.dsn, "show work_mem") == "5MB"
    with pytest.raises(LocalPostgresError, match="say dev or test"):
        LocalPostgres(made, profile="prod")  # type: ignore[arg-type]


def test_joining_a_server_with_other_settings_is_said_aloud(
    made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalPostgres(made, profile="test"):
        with caplog.at_level(logging.WARNING), LocalPostgres(made, settings={"work_mem": "5MB"}):
            assert "work_mem=5MB" in caplog.text


def test_a_failed_start_shows_the_end_of_the_log_and_leaves_nothing(made: Path) -> None:
    server = LocalPostgres(made, settings={"no_such_setting": "1"})
    with pytest.raises(LocalPostgresError, match=r'unrecognized .*"no_such_setting"'):
        server.start()
    eventually(lambda: nothing_left(made))


def test_a_database_that_cannot_be_made_stops_what_was_started_for_it(made: Path) -> None:
    with pytest.raises(LocalPostgresError, match="cannot be had"):
        LocalPostgres(made, profile="test", database="").start()
    assert nothing_left(made)


def test_a_tcp_port_is_opened_on_request_and_asks_for_a_password(made: Path) -> None:
    with LocalPostgres(made, profile="test") as server:
        assert server.status().port is None
        with pytest.raises(LocalPostgresError, match="no TCP port"):
            _ = server.tcp_dsn
        with pytest.raises(LocalPostgresError, match="without a TCP port"):
            LocalPostgres(made, profile="test", listen=True).start()

    with LocalPostgres(made, profile="test", listen=True) as server:
        assert ask(server.tcp_dsn, "select host(inet_server_addr())") == "127.0.0.1"
        assert ask(server.dsn, "select inet_server_addr()") is None
        port = server.status().port
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"host=127.0.0.1 port={port} user=postgres dbname=rota")
    with LocalPostgres(made, profile="test", listen=True) as server:
        assert ask(server.tcp_dsn, "select 1") == 1


def test_a_directory_with_other_things_in_it_is_left_alone(fresh: Path) -> None:
    fresh.mkdir()
    (fresh / "letter.txt").write_text("dear")

    with pytest.raises(LocalPostgresError, match="not empty"):
        LocalPostgres(fresh).start()

    assert [path.name for path in fresh.iterdir()] == ["letter.txt"]
    assert not fresh.with_name("pg.new").exists()
