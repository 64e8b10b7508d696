"""Apps that start, end and are killed while they share one server."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from rota.localpg import LocalPostgres
from support.app_processes import (
    App,
    fetch_value,
    has_no_processes,
    processes,
    wait_until,
)

Start = Callable[..., App]


def test_start_concurrent_apps_share_one_server(new_data_directory: Path, start_app: Start) -> None:
    three = [start_app(new_data_directory) for _ in range(3)]
    dsns = {one.started() for one in three}

    assert len(dsns) == 1
    assert fetch_value(dsns.pop(), "select 1") == 1
    assert len([c for c in processes(new_data_directory).values() if "watcher.py" not in c]) == 1


def test_server_stops_when_app_is_killed_during_start(
    data_directory: Path, start_app: Start
) -> None:
    for moment in (0.0, 0.02, 0.05, 0.1):
        one = start_app(data_directory).asking()
        time.sleep(moment)  # a fixed delay on purpose: it chooses the moment of the kill
        one.kill()
        wait_until(lambda: has_no_processes(data_directory))


def test_start_after_kill_of_last_app_gets_working_server(
    data_directory: Path, start_app: Start
) -> None:
    chance = random.Random(4711)
    for _ in range(4):
        last = start_app(data_directory)
        last.started()
        last.kill()
        time.sleep(
            chance.uniform(0, 0.03)
        )  # the watcher is waking up, stopping the server, or done
        with LocalPostgres(data_directory, profile="test") as server:
            assert fetch_value(server.dsn, "select 1") == 1
    assert has_no_processes(data_directory)
