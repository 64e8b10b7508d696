"""One server for many apps: it starts with the first app and stops with the last, however that one ends."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres
from rota.localpg.locks import ServerShare, control_lock, is_free
from rota.localpg.paths import ServerPaths
from rota.localpg.postmaster import is_serving

from .apps import App, ask, eventually, nothing_left, on_linux, pid_of, processes, watcher_of

Start = Callable[..., App]


def test_three_apps_at_once_on_a_fresh_directory_end_on_one_server(fresh: Path, app: Start) -> None:
    three = [app(fresh) for _ in range(3)]
    dsns = {one.started() for one in three}

    assert len(dsns) == 1
    assert ask(dsns.pop(), "select 1") == 1
    assert len([c for c in processes(fresh).values() if "watcher.py" not in c]) == 1


def test_the_last_app_stops_the_server_and_no_earlier_one_does(made: Path, app: Start) -> None:
    first, second = app(made), app(made)
    dsn = first.started()
    second.started()
    server = pid_of(made)

    first.stop()
    assert pid_of(made) == server
    assert ask(dsn, "select 1") == 1

    second.stop()
    assert nothing_left(made)


def test_two_shares_in_one_process_count_twice(made: Path) -> None:
    first, second = (LocalPostgres(made, profile="test") for _ in range(2))
    first.start()
    second.start()

    first.stop()
    assert ask(second.dsn, "select 1") == 1
    second.stop()
    assert nothing_left(made)


def test_a_killed_app_does_not_take_the_server_from_the_others(made: Path, app: Start) -> None:
    first, second = app(made), app(made)
    first.started()
    dsn = second.started()
    server = pid_of(made)

    first.kill()
    assert ask(dsn, "select 1") == 1
    second.stop()

    assert nothing_left(made)
    assert not is_serving(server, made)


def test_when_every_app_is_killed_the_server_goes_too(made: Path, app: Start) -> None:
    apps = [app(made) for _ in range(3)]
    for one in apps:
        one.started()

    for one in apps:
        one.kill()

    eventually(lambda: nothing_left(made))


def test_an_app_that_ends_without_stop_leaves_nothing(made: Path, app: Start) -> None:
    one = app(made)
    one.started()

    one.tell("leave")

    eventually(lambda: nothing_left(made))


def test_an_app_killed_at_any_moment_of_its_start_leaves_nothing(made: Path, app: Start) -> None:
    for moment in (0.0, 0.02, 0.05, 0.1):
        one = app(made).asking()
        time.sleep(moment)  # a fixed delay on purpose: it chooses the moment of the kill
        one.kill()
        eventually(lambda: nothing_left(made))


@on_linux
def test_an_app_that_arrives_while_the_last_one_leaves_gets_a_working_server(
    made: Path, app: Start
) -> None:
    last = app(made)
    last.started()
    old = pid_of(made)
    os.kill(old, signal.SIGSTOP)  # stopping now takes as long as the test needs
    last.tell("stop")
    eventually(lambda: not is_free(ServerPaths(made).control_lock))

    arriving = app(made).asking()
    eventually(lambda: is_at_the_gate(arriving.pid, made))
    os.kill(old, signal.SIGCONT)

    assert ask(arriving.started(), "select 1") == 1
    assert pid_of(made) != old
    assert last.hear() == "stopped"
    arriving.stop()
    assert nothing_left(made)


def test_an_app_killed_while_its_server_starts_leaves_the_watcher_in_charge(
    made: Path, waiting: Path, app: Start
) -> None:
    unlucky = app(made, env={"ROTA_PG_BIN": str(waiting)})
    eventually(lambda: any(str(waiting / "postgres") in c for c in processes(made).values()))

    unlucky.kill()
    assert not is_free(ServerPaths(made).control_lock)

    (waiting / "go").touch()
    with LocalPostgres(made, profile="test") as server:
        assert ask(server.dsn, "select 1") == 1
    assert nothing_left(made)


@on_linux
def test_the_watcher_waits_at_the_gate_and_lets_a_new_app_keep_the_server(
    made: Path, app: Start
) -> None:
    place = ServerPaths(made)
    last = app(made)
    dsn = last.started()
    server, watcher = pid_of(made), watcher_of(made)

    with control_lock(place, timeout=5):
        last.kill()
        eventually(lambda: is_at_the_gate(watcher, made))
        share = ServerShare(place)
    eventually(lambda: not is_at_the_gate(watcher, made))

    assert pid_of(made) == server
    assert ask(dsn, "select 1") == 1
    share.close()
    eventually(lambda: nothing_left(made))


def is_at_the_gate(pid: int, directory: Path) -> bool:
    """True if the process waits for the control lock or holds it."""
    opened = set()
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            opened.add(os.readlink(file))
    return str(ServerPaths(directory).control_lock) in opened


def test_an_app_that_arrives_while_the_last_one_is_killed_gets_a_working_server(
    made: Path, app: Start
) -> None:
    chance = random.Random(4711)
    for _ in range(4):
        last = app(made)
        last.started()
        last.kill()
        time.sleep(
            chance.uniform(0, 0.03)
        )  # the watcher is waking up, stopping the server, or done
        with LocalPostgres(made, profile="test") as server:
            assert ask(server.dsn, "select 1") == 1
    assert nothing_left(made)


def test_a_forked_child_cannot_give_back_its_parents_share(made: Path, app: Start) -> None:
    parent, other = app(made), app(made)
    dsn = parent.started()
    other.started()

    with forked(parent, "fork a child that stops"):
        other.stop()
        assert ask(dsn, "select 1") == 1


def test_a_forked_child_that_outlives_its_parent_keeps_nothing_up(made: Path, app: Start) -> None:
    parent = app(made)
    parent.started()

    with forked(parent, "fork a child"):
        parent.kill()
        eventually(lambda: nothing_left(made))


def test_a_forked_child_can_take_a_share_of_its_own(made: Path, app: Start) -> None:
    parent = app(made)
    dsn = parent.started()

    with forked(parent, "fork a child that starts"):
        parent.stop()
        assert ask(dsn, "select 1") == 1
    eventually(lambda: nothing_left(made))


@contextmanager
def forked(parent: App, how: str) -> Iterator[None]:
    parent.tell(how)
    child = int(parent.hear().removeprefix("child "))
    try:
        yield
        os.kill(child, 0)  # the child is still alive
    finally:
        os.kill(child, signal.SIGKILL)


def test_ctrl_c_in_the_terminal_of_an_app_is_not_meant_for_the_server(
    made: Path, app: Start
) -> None:
    one = app(made, sigint="ignore")
    dsn = one.started()
    server = pid_of(made)

    one.interrupt()

    one.tell("start")
    assert one.hear() == dsn
    assert ask(dsn, "select 1") == 1
    assert pid_of(made) == server


def test_a_lost_watcher_is_replaced_by_the_next_app_that_joins(made: Path, app: Start) -> None:
    first = app(made)
    first.started()
    lost = watcher_of(made)
    os.kill(lost, signal.SIGKILL)
    eventually(lambda: is_free(ServerPaths(made).watcher_lock))

    second = app(made)
    second.started()
    assert watcher_of(made) != lost

    first.kill()
    second.kill()
    eventually(lambda: nothing_left(made))


def test_a_kept_server_stays_when_everybody_leaves_until_it_is_released(
    made: Path, app: Start
) -> None:
    server = LocalPostgres(made, profile="test")
    dsn = server.start_detached()
    assert server.status().detached
    one = app(made)
    one.started()
    one.stop()
    two = app(made)
    two.started()
    two.kill()
    assert ask(dsn, "select 1") == 1

    assert server.stop_detached()
    assert nothing_left(made)


def test_a_released_server_in_use_stops_with_its_last_app(made: Path, app: Start) -> None:
    server = LocalPostgres(made, profile="test")
    dsn = server.start_detached()
    one = app(made)
    one.started()

    assert not server.stop_detached()
    assert ask(dsn, "select 1") == 1

    one.kill()
    eventually(lambda: nothing_left(made))


def test_a_server_whose_directory_was_removed_goes_with_its_last_app(
    home: Path, made: Path, app: Start
) -> None:
    one = app(made)
    one.started()
    elsewhere = home / "trash"
    elsewhere.mkdir()
    for path in (
        made,
        ServerPaths(made).run_directory,
    ):  # moved, not deleted: later tests reuse it
        path.rename(elsewhere / path.name)

    one.kill()

    eventually(lambda: nothing_left(made))
    (elsewhere / made.name).rename(made)


def test_a_server_that_somebody_else_started_is_neither_used_nor_stopped(made: Path) -> None:
    with LocalPostgres(made, profile="test") as server:
        dsn = server.dsn
        (made / "postmaster.opts").write_text('postgres "-D" "elsewhere"\n')

        with pytest.raises(LocalPostgresError, match="Rota did not start"):
            LocalPostgres(made, profile="test").start()
        assert ask(dsn, "select 1") == 1

        (made / "postmaster.opts").write_text('postgres "-c" "cluster_name=rota"\n')
