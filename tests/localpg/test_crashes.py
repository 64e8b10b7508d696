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

from .apps import App, ask, eventually, nothing_left, on_linux, pid_of, processes, tell

Start = Callable[..., App]


def test_after_sigkill_of_the_postmaster_a_restart_recovers_what_was_committed(made: Path) -> None:
    with LocalPostgres(made) as server:
        tell(server.dsn, "drop table if exists kept; create table kept as select 42 as answer")
        before = pid_of(made)

        server.kill()
        assert not server.status().running
        server.restart()

        assert pid_of(made) != before
        assert ask(server.dsn, "select answer from kept") == 42


def test_after_sigkill_of_the_postmaster_the_same_app_can_just_start_again(made: Path) -> None:
    with LocalPostgres(made, profile="test") as server:
        server.kill()
        assert ask(server.start(), "select 1") == 1
    assert nothing_left(made)


def test_after_sigkill_of_the_postmaster_another_app_can_start_it(made: Path, app: Start) -> None:
    first = app(made, profile="dev")
    tell(first.started(), "drop table if exists kept; create table kept as select 42 as answer")
    os.kill(pid_of(made), signal.SIGKILL)

    second = app(made, profile="dev")
    assert ask(second.started(), "select answer from kept") == 42

    first.stop()
    second.stop()
    assert nothing_left(made)


def test_an_immediate_stop_is_recovered_from(made: Path) -> None:
    with LocalPostgres(made) as server:
        tell(server.dsn, "drop table if exists kept; create table kept as select 42 as answer")
        server.restart(immediately=True)
        assert ask(server.dsn, "select answer from kept") == 42


@on_linux
def test_a_backend_too_busy_to_notice_the_crash_is_waited_for_and_then_ended(made: Path) -> None:
    with LocalPostgres(made, profile="test") as server:
        busy = psycopg.connect(server.dsn, autocommit=True)

        def spin() -> None:
            with pytest.raises(psycopg.OperationalError):
                busy.execute("do $$ begin loop end loop; end $$")

        thread = Thread(target=spin)
        thread.start()
        running = "select count(*) from pg_stat_activity where query like 'do %' and state='active'"
        eventually(lambda: ask(server.dsn, running) == 1)

        server.kill()
        server.restart()

        assert ask(server.dsn, "select 1") == 1
        thread.join(60)
        busy.close()


def test_a_process_number_given_to_somebody_else_is_not_taken_for_a_server(made: Path) -> None:
    with LocalPostgres(made, profile="test") as server:
        server.kill()
        for file in (made / "postmaster.pid", made / ".s.PGSQL.5432.lock"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join([str(os.getpid()), *lines[1:]]))
        assert not server.status().running

        assert ask(server.restart(), "select 1") == 1


def test_an_interrupted_initdb_does_not_poison_the_next_start(
    fresh: Path, waiting: Path, app: Start
) -> None:
    unlucky = app(fresh, env={"ROTA_PG_BIN": str(waiting)})
    half = fresh.with_name("pg.new") / "PG_VERSION"
    eventually(half.exists)
    unlucky.kill()
    for pid in processes(half.parent):
        os.kill(pid, signal.SIGKILL)

    with LocalPostgres(fresh, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
    assert not fresh.with_name("pg.new").exists()


def test_an_initdb_that_outlives_its_app_keeps_the_others_waiting(
    fresh: Path, waiting: Path, app: Start
) -> None:
    unlucky = app(fresh, env={"ROTA_PG_BIN": str(waiting)})
    eventually((fresh.with_name("pg.new") / "PG_VERSION").exists)

    unlucky.kill()
    assert processes(fresh.with_name("pg.new"))
    assert not is_free(ServerPaths(fresh).control_lock)

    (waiting / "go").touch()
    with LocalPostgres(fresh, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_LOG_BYTES", 1000)
    monkeypatch.setattr(watcher, "LOG_TAIL_BYTES", 100)
    log = tmp_path / "server.log"
    with log.open("ab", buffering=0) as server:  # the server appends to a file it keeps open
        server.write(b"old " * 500)
        watcher._trim_log(str(log))
        server.write(b"new")

    assert log.read_bytes() == b"old " * 25 + b"new"
