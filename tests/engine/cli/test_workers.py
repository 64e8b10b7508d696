"""`rota workers` and `rota drain`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from rota.errors import WorkerNotFound
from rota.operations.workers import worker_state
from support.cli_fixtures import Rota
from support.scale import scale
from support.terminal import Program, Terminal
from support.worker_rows import cells, insert_worker, run_on_terminal


@pytest.fixture
def registry(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Connection for inserting workers in states that take long to reach."""
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


# Listing


def test_workers_command_no_worker_prints_hint(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    assert empty_rota("workers").out == (
        "no worker is running; start one with `rota worker MODULE:APP`\n"
    )
    assert empty_rota("workers", "--json").json() == {"workers": []}

    insert_worker(registry, "stopped", ended=5)

    assert empty_rota("workers").out == (
        "no worker is running (1 stopped or died within a day; list them with --all); "
        "start one with `rota worker MODULE:APP`\n"
    )


def test_workers_command_lists_queues_tasks_and_capacity(rota: Rota, worker: Program) -> None:
    line = next(each for each in cells(rota("workers").out) if str(worker.pid) in each)
    document = next(
        each for each in rota("workers", "--json").json()["workers"] if each["pid"] == worker.pid
    )

    assert line[1] == "active"
    assert "default, images" in line
    assert f"{document['running']}/100" in line
    assert document["queues"] == ["default", "images"]
    assert "echo" in document["tasks"]
    assert document["rota_version"]
    assert (document["state"], document["ended"], document["charged_jobs"]) == ("active", None, [])


def test_workers_command_all_option_adds_ended_workers(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    here = insert_worker(registry)
    draining = insert_worker(registry, "draining")
    left = insert_worker(registry, "stopped", ended=3 * 3600)
    dead = insert_worker(registry, "dead", ended=300, beat=320, blamed=[7, 8])

    listed = cells(empty_rota("workers").out)
    whole = empty_rota("workers", "--all").out

    assert [each[:2] for each in listed] == [
        [str(here), "active"],
        [str(draining), "draining"],
    ]
    assert [each[:2] for each in cells(whole)[2:]] == [
        [str(left), "stopped 3 h ago"],
        [str(dead), "dead 5 min ago"],
    ]
    assert "charged" in whole.splitlines()[0]
    assert whole.splitlines()[4].endswith("2 jobs")
    documents = empty_rota("workers", "--all", "--json").json()["workers"]
    assert [each["charged_jobs"] for each in documents] == [[], [], [], ["7", "8"]]


def test_workers_command_drain_request_is_shown_as_draining(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    insert_worker(registry)
    registry.execute("update rota.workers set drain_requested = now()")

    assert cells(empty_rota("workers").out)[0][1] == "draining"


@pytest.mark.parametrize(("age", "state"), [(19.9, "active"), (20.1, "silent")])
def test_worker_state_is_silent_only_after_dead_after(age: float, state: str) -> None:
    now = datetime.now(UTC)
    row: Any = SimpleNamespace(
        ended=None,
        last_beat=now - timedelta(seconds=age),
        state="active",
        drain_requested=None,
    )

    assert worker_state(row, now, 20.0) == state


def test_workers_command_missing_heartbeat_is_shown_as_silent(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    active = insert_worker(registry, beat=-3600)
    silent = insert_worker(registry, beat=25)

    done = empty_rota("workers")

    assert [each[:2] for each in cells(done.out)[:2]] == [
        [str(active), "active"],
        [str(silent), "silent"],
    ]
    told = rf"worker {silent} has been silent for \d\d s: if it stays silent, another"
    assert re.search(told, done.out)
    documents = empty_rota("workers", "--json").json()["workers"]
    assert [each["state"] for each in documents] == ["active", "silent"]
    registry.execute("delete from rota.workers where id = %s", [active])
    assert "no other worker can take back its jobs; start one" in empty_rota("workers").out


def test_workers_command_slow_loop_adds_lag_column(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    insert_worker(registry, lag=0.05)
    assert "lag" not in empty_rota("workers").out

    insert_worker(registry, lag=0.7)

    heading, quick, slow = empty_rota("workers").out.splitlines()
    assert "lag" in heading
    assert "50 ms" not in quick
    assert "700 ms" in slow


def test_workers_command_metadata_is_escaped(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    insert_worker(registry, metadata='{"zone": "[red]\\u001b[2J", "rank": 3}', version="v\x1b[1m")

    printed = empty_rota("workers").out

    assert "zone=[red]\\x1b[2J rank=3" in printed
    assert "\x1b" not in printed


@pytest.mark.parametrize("columns", scale([80], [80, 120]))
def test_workers_command_fits_the_terminal(
    registry: psycopg.Connection[Any], empty_dsn: str, columns: int
) -> None:
    host = "shop-worker-6d4b75cb6d-hwsz5"
    # Its heartbeat is in the future, so that it stays active however long the command takes to start.
    number = insert_worker(
        registry, host=host, version="4f2c9e1", metadata='{"zone": "eu-1"}', beat=-3600
    )
    insert_worker(registry, "dead", host=host, ended=300, blamed=[1])

    printed = run_on_terminal(empty_dsn, columns, "workers", "--all")

    plain = re.sub(r"\x1b\[[\d;]*m", "", printed).splitlines()
    assert plain != printed.splitlines()
    assert max(map(len, plain)) <= columns
    [row] = [line for line in plain if line.split()[:2] == [str(number), "active"]]
    assert "shop-wor" in row
    assert "3/50" in row
    assert "2 h" in row
    if columns == 80:
        assert plain[-1] == "process and metadata: in a wider terminal, or with --json"
    else:
        assert "4242" in row
        assert "zone=eu-1" in row
    assert "\x1b[3" not in run_on_terminal(empty_dsn, columns, "workers", NO_COLOR="1")


# Draining


def test_drain_wait_returns_when_the_worker_has_stopped(
    terminal: Terminal, tmp_path: Path, busy: tuple[Program, str]
) -> None:
    worker, number = busy
    with terminal.program("drain", number, "--wait", "60") as drain:
        drain.said(f"worker {number} is draining: 1 job left")
        assert terminal.run("workers", "--json").json()["workers"][0]["state"] == "draining"

        (tmp_path / "go").touch()

        ended = drain.ended()
    assert ended.code == 0
    asked, left = ended.out.splitlines()
    assert re.fullmatch(
        rf"worker {number} \(.+, process {worker.pid}\) has been asked to finish 1 job and stop",
        asked,
    )
    assert left == f"worker {number} has stopped"
    assert worker.ended().code == 0
    again = terminal.run("drain", number)
    assert (again.code, again.complaint) == (NOT_FOUND, f"worker {number} has left already")


def test_drain_wait_dying_worker_exits_with_failure(
    terminal: Terminal, registry: psycopg.Connection[Any]
) -> None:
    number = insert_worker(registry, "draining")
    with terminal.program("drain", str(number), "--wait", "60") as drain:
        drain.said("is draining")

        registry.execute("update rota.workers set state = 'dead', ended = now()")

        ended = drain.ended()
    assert ended.code == FAILED
    assert "died before it stopped" in ended.err


def test_drain_missing_worker_does_not_stop_the_remaining_ones(
    empty_rota: Rota, registry: psycopg.Connection[Any]
) -> None:
    dead = insert_worker(registry, "dead", ended=5)
    silent = insert_worker(registry, beat=60)

    done = empty_rota("drain", "999999", str(dead), str(silent))

    assert done.code == NOT_FOUND
    assert "there is no worker 999999; `rota workers --all` lists" in done.err
    assert f"worker {dead} is dead" in done.err
    assert f"worker {silent} has been silent for" in done.err
    assert done.out == (
        f"worker {silent} (web-1, process 4242) has been asked to stop; it holds no job\n"
    )
    [asked] = registry.execute(
        "select id from rota.workers where drain_requested is not null"
    ).fetchall()
    assert asked == (silent,)


def test_drain_invalid_arguments_are_usage_errors(empty_rota: Rota) -> None:
    for words in (("drain",), ("drain", "web-1"), ("drain", "1", "--wait", "-1")):
        assert empty_rota(*words).code == USAGE_ERROR


async def test_app_drain_requests_drain_or_raises_worker_not_found(
    empty_dsn: str, registry: psycopg.Connection[Any]
) -> None:
    here, left = insert_worker(registry), insert_worker(registry, "stopped", ended=5)
    async with App(empty_dsn) as app:
        await app.drain(here)

        with pytest.raises(WorkerNotFound, match=f"worker {left} has left already"):
            await app.drain(left)
        with pytest.raises(WorkerNotFound, match="there is no worker 999999"):
            await app.drain(999999)
    asked = registry.execute(
        "select id from rota.workers where drain_requested is not null"
    ).fetchall()
    assert asked == [(here,)]
