"""One server for many apps: it starts with the first app and stops with the last, however that one ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres
from rota.localpg.locks import ServerShare, control_lock, is_free
from rota.localpg.paths import ServerPaths
from rota.localpg.postmaster import is_serving
from support.app_processes import (
    App,
    fetch_value,
    has_no_processes,
    on_linux,
    processes,
    server_pid,
    wait_until,
    watcher_pid,
)

Start = Callable[..., App]


def test_stop_by_last_app_stops_the_server(data_directory: Path, start_app: Start) -> None:
    first, second = start_app(data_directory), start_app(data_directory)
    dsn = first.started()
    second.started()
    server = server_pid(data_directory)

    first.stop()
    assert server_pid(data_directory) == server
    assert fetch_value(dsn, "select 1") == 1

    second.stop()
    assert has_no_processes(data_directory)


def test_stop_two_shares_of_one_process_are_counted(data_directory: Path) -> None:
    first, second = (LocalPostgres(data_directory, profile="test") for _ in range(2))
    first.start()
    second.start()

    first.stop()
    assert fetch_value(second.dsn, "select 1") == 1
    second.stop()
    assert has_no_processes(data_directory)


def test_killed_app_leaves_server_to_other_apps(data_directory: Path, start_app: Start) -> None:
    first, second = start_app(data_directory), start_app(data_directory)
    first.started()
    dsn = second.started()
    server = server_pid(data_directory)

    first.kill()
    assert fetch_value(dsn, "select 1") == 1
    second.stop()

    assert has_no_processes(data_directory)
    assert not is_serving(server, data_directory)


def test_server_stops_when_all_apps_are_killed(data_directory: Path, start_app: Start) -> None:
    apps = [start_app(data_directory) for _ in range(3)]
    for one in apps:
        one.started()

    for one in apps:
        one.kill()

    wait_until(lambda: has_no_processes(data_directory))


def test_server_stops_when_app_exits_without_stop(data_directory: Path, start_app: Start) -> None:
    one = start_app(data_directory)
    one.started()

    one.tell("leave")

    wait_until(lambda: has_no_processes(data_directory))


@on_linux
def test_start_during_stop_of_last_app_gets_working_server(
    data_directory: Path, start_app: Start
) -> None:
    last = start_app(data_directory)
    last.started()
    old = server_pid(data_directory)
    os.kill(old, signal.SIGSTOP)  # stopping now takes as long as the test needs
    last.tell("stop")
    wait_until(lambda: not is_free(ServerPaths(data_directory).control_lock))

    arriving = start_app(data_directory).asking()
    wait_until(lambda: has_control_lock_open(arriving.pid, data_directory))
    os.kill(old, signal.SIGCONT)

    assert fetch_value(arriving.started(), "select 1") == 1
    assert server_pid(data_directory) != old
    assert last.hear() == "stopped"
    arriving.stop()
    assert has_no_processes(data_directory)


def test_start_after_app_was_killed_during_server_start_succeeds(
    data_directory: Path, paused_binaries: Path, start_app: Start
) -> None:
    unlucky = start_app(data_directory, env={"ROTA_PG_BIN": str(paused_binaries)})
    wait_until(
        lambda: any(
            str(paused_binaries / "postgres") in c for c in processes(data_directory).values()
        )
    )

    unlucky.kill()
    assert not is_free(ServerPaths(data_directory).control_lock)

    (paused_binaries / "go").touch()
    with LocalPostgres(data_directory, profile="test") as server:
        assert fetch_value(server.dsn, "select 1") == 1
    assert has_no_processes(data_directory)


@on_linux
def test_watcher_keeps_server_if_new_share_precedes_stop(
    data_directory: Path, start_app: Start
) -> None:
    place = ServerPaths(data_directory)
    last = start_app(data_directory)
    dsn = last.started()
    server, watcher = server_pid(data_directory), watcher_pid(data_directory)

    with control_lock(place, timeout=60):
        last.kill()
        wait_until(lambda: has_control_lock_open(watcher, data_directory))
        share = ServerShare(place)
    wait_until(lambda: not has_control_lock_open(watcher, data_directory))

    assert server_pid(data_directory) == server
    assert fetch_value(dsn, "select 1") == 1
    share.close()
    wait_until(lambda: has_no_processes(data_directory))


def has_control_lock_open(pid: int, directory: Path) -> bool:
    """True if the process waits for the control lock or holds it."""
    opened = set()
    for file in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):
            opened.add(os.readlink(file))
    return str(ServerPaths(directory).control_lock) in opened


def test_forked_child_cannot_release_share_of_parent(
    data_directory: Path, start_app: Start
) -> None:
    parent, other = start_app(data_directory), start_app(data_directory)
    dsn = parent.started()
    other.started()

    with forked_child(parent, "fork a child that stops"):
        other.stop()
        assert fetch_value(dsn, "select 1") == 1


def test_forked_child_outliving_parent_does_not_keep_server(
    data_directory: Path, start_app: Start
) -> None:
    parent = start_app(data_directory)
    parent.started()

    with forked_child(parent, "fork a child"):
        parent.kill()
        wait_until(lambda: has_no_processes(data_directory))


def test_forked_child_can_acquire_its_own_share(data_directory: Path, start_app: Start) -> None:
    parent = start_app(data_directory)
    dsn = parent.started()

    with forked_child(parent, "fork a child that starts"):
        parent.stop()
        assert fetch_value(dsn, "select 1") == 1
    wait_until(lambda: has_no_processes(data_directory))


@contextmanager
def forked_child(parent: App, how: str) -> Iterator[None]:
    parent.tell(how)
    child = int(parent.hear().removeprefix("child "))
    try:
        yield
        os.kill(child, 0)  # the child is still alive
    finally:
        os.kill(child, signal.SIGKILL)


def test_ctrl_c_of_app_does_not_stop_the_server(data_directory: Path, start_app: Start) -> None:
    one = start_app(data_directory, sigint="ignore")
    dsn = one.started()
    server = server_pid(data_directory)

    one.interrupt()

    one.tell("start")
    assert one.hear() == dsn
    assert fetch_value(dsn, "select 1") == 1
    assert server_pid(data_directory) == server


def test_watcher_killed_is_replaced_by_next_app(data_directory: Path, start_app: Start) -> None:
    first = start_app(data_directory)
    first.started()
    lost = watcher_pid(data_directory)
    os.kill(lost, signal.SIGKILL)
    wait_until(lambda: is_free(ServerPaths(data_directory).watcher_lock))

    second = start_app(data_directory)
    second.started()
    assert watcher_pid(data_directory) != lost

    first.kill()
    second.kill()
    wait_until(lambda: has_no_processes(data_directory))


def test_detached_server_stays_up_until_stop_detached(
    data_directory: Path, start_app: Start
) -> None:
    server = LocalPostgres(data_directory, profile="test")
    dsn = server.start_detached()
    assert server.status().detached
    one = start_app(data_directory)
    one.started()
    one.stop()
    two = start_app(data_directory)
    two.started()
    two.kill()
    assert fetch_value(dsn, "select 1") == 1

    assert server.stop_detached()
    assert has_no_processes(data_directory)


def test_detached_server_in_use_stops_with_its_last_app(
    data_directory: Path, start_app: Start
) -> None:
    server = LocalPostgres(data_directory, profile="test")
    dsn = server.start_detached()
    one = start_app(data_directory)
    one.started()

    assert not server.stop_detached()
    assert fetch_value(dsn, "select 1") == 1

    one.kill()
    wait_until(lambda: has_no_processes(data_directory))


def test_server_with_moved_directory_stops_with_its_last_app(
    temporary_home: Path, data_directory: Path, start_app: Start
) -> None:
    one = start_app(data_directory)
    one.started()
    elsewhere = temporary_home / "trash"
    elsewhere.mkdir()
    for path in (
        data_directory,
        ServerPaths(data_directory).run_directory,
    ):  # moved, not deleted: later tests reuse it
        path.rename(elsewhere / path.name)

    one.kill()

    wait_until(lambda: has_no_processes(data_directory))
    (elsewhere / data_directory.name).rename(data_directory)


def test_start_foreign_server_is_refused_and_not_stopped(data_directory: Path) -> None:
    with LocalPostgres(data_directory, profile="test") as server:
        dsn = server.dsn
        (data_directory / "postmaster.opts").write_text('postgres "-D" "elsewhere"\n')

        with pytest.raises(LocalPostgresError, match="Rota did not start"):
            LocalPostgres(data_directory, profile="test").start()
        assert fetch_value(dsn, "select 1") == 1

        (data_directory / "postmaster.opts").write_text('postgres "-c" "cluster_name=rota"\n')
