"""`rota autoscale`: desired workers as a table, as JSON and as an exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota.cli.exit_codes import FAILED, NOT_FOUND, OK, USAGE_ERROR
from support.cli_fixtures import Rota

JOBS = """
with given as (
    insert into rota.jobs (task, queue, args)
    select 'work', 'default', '{}' from generate_series(1, 3)
    returning id)
insert into rota.queued (seq, job, priority, queue, task)
select given.id, given.id, 0, 'default', 'work' from given
"""
WORKER = """
insert into rota.workers (host, pid, version, queues, tasks, capacity)
values ('one', 1, '', '{default,idle}', '{work}', 10)
"""


@pytest.fixture
def load(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def test_autoscale_command_no_queue_prints_hint(empty_rota: Rota) -> None:
    done = empty_rota("autoscale")

    assert (done.code, done.out) == (
        OK,
        "no queue is known: no job is queued, and no worker is running\n",
    )


def test_autoscale_command_prints_a_line_per_queue(
    empty_rota: Rota, load: psycopg.Connection[Any]
) -> None:
    load.execute(JOBS)
    load.execute(WORKER)
    heading, default, idle = empty_rota("autoscale").out.splitlines()

    assert heading.split()[:3] == ["queue", "desired", "workers"]
    assert default.split()[:3] == ["default", "1", "1"]
    assert idle.split()[:3] == ["idle", "0", "1"]
    told = json.loads(empty_rota("autoscale", "--json", "-q", "default").out)["queues"]
    assert [(each["queue"], each["desired"], each["backlog"]) for each in told] == [
        ("default", 1, 3)
    ]
    [least] = json.loads(empty_rota("autoscale", "--json", "-q", "idle", "--min", "2").out)[
        "queues"
    ]
    assert least["desired"] == 2


def test_autoscale_check_fails_with_too_few_workers_or_bad_options(
    empty_rota: Rota, load: psycopg.Connection[Any]
) -> None:
    load.execute(JOBS)
    assert empty_rota("autoscale").code == OK
    assert empty_rota("autoscale", "--check").code == FAILED
    load.execute(WORKER)
    assert empty_rota("autoscale", "--check").code == OK
    assert empty_rota("autoscale", "-q", "nowhere").code == NOT_FOUND
    done = empty_rota("autoscale", "--min", "5", "--max", "2")
    assert done.code == USAGE_ERROR
    assert "--min is 5" in done.err
