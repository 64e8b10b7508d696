"""`rota quarantine` and `release`, and the other commands' output about jobs lost with workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.app.sync import SyncRun
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from rota.errors import RunNotFound

from .conftest import Rota
from .terminal import Terminal, eventually

SHOP = ("-a", "shop:app")
MILL = ("-a", "mill:app")
SOON = {"ROTA_HEARTBEAT_INTERVAL": "0.5", "ROTA_DEAD_AFTER": "8"}


@pytest.fixture
def places(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def start(rota: Rota, *words: str) -> str:
    return rota("start", *words).out.splitlines()[0]


def put_aside(places: psycopg.Connection[Any], *jobs: str) -> None:
    """Move jobs to quarantine as if three workers had died running each of them."""
    for job in map(int, jobs):
        places.execute(
            "with gone as (delete from rota.queued where job = %(job)s returning *)"
            " insert into rota.quarantine (job, priority, attempt, lost, queue, task, error)"
            " select job, priority, 4, -5, queue, task, %(error)s from gone",
            {
                "job": job,
                "error": '{"type": "rota.errors.WorkerLost", "message": '
                '"3 workers were lost while they ran it"}',
            },
        )


def state(rota: Rota, run: str) -> object:
    return rota("show", run, "--json").json()["state"]


# A job that kills its worker


def test_a_job_that_kills_is_put_aside_shown_with_its_victim_and_tried_again_once_released(
    terminal: Terminal, alone: Rota, tmp_path: Path
) -> None:
    words = ("worker", "shop:app", "--processes", "2")
    with terminal.program(*words, **SOON) as parent:
        parent.said("up to", times=2)
        run = start(alone, *SHOP, "perilous", f"file={tmp_path / 'safe'}")
        parent.said(f"job {run} (perilous) is in quarantine")
        [dead] = [
            each for each in alone("workers", "--all", "--json").json() if each["state"] == "dead"
        ]
        victim = f"worker {dead['worker']} ({dead['host']})"

        [listed] = alone("quarantine", "--json").json()
        table = alone("quarantine").out
        shown = alone("show", run).out

        assert (listed["job"], listed["run"], listed["crashes"]) == (int(run), int(run), 1)
        assert dead["charged_jobs"] == [int(run)]
        assert re.search(
            rf"{run}  perilous  default +2 +1 +\d+ s  lost with {re.escape(victim)}", table
        )
        assert f"run {run} quarantined" in shown
        assert re.search(rf"reason +a worker was lost .*: {re.escape(victim)}\n", shown)
        assert f"`rota release {run}` retries it, `rota cancel {run}` ends it" in shown
        assert re.search(rf"1  lost +{dead['worker']} .* lost with {re.escape(victim)}", shown)

        (tmp_path / "safe").touch()
        assert alone("release", run).out == f"run {run} is queued for a retry\n"
        eventually(lambda: state(alone, run) == "succeeded")

    assert alone("quarantine").out == "no job is in quarantine\n"


# Listing


def test_jobs_in_quarantine_are_listed_by_task_and_queue_and_page_by_page(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    ids = [start(alone, *SHOP, "echo", f"value={each}") for each in range(2)]
    ids.append(start(alone, *SHOP, "resize", "path=a"))
    put_aside(places, *ids)

    first = alone("quarantine", "--limit", "2", "--json").json()
    second = alone("quarantine", "--after", str(first[-1]["job"]), "--json").json()

    assert [str(each["job"]) for each in first + second] == ids
    for words in (("--task", "resize"), ("--queue", "images")):
        assert [each["task"] for each in alone("quarantine", *words, "--json").json()] == ["resize"]
    assert alone("quarantine", "--task", "x").out == "no job in quarantine matches\n"
    assert first[0]["crashes"] == 3
    assert alone("quarantine").out.splitlines()[1].endswith("3 workers were lost while they ran it")


def test_the_other_lists_know_of_it(alone: Rota, places: psycopg.Connection[Any]) -> None:
    aside = [start(alone, *SHOP, "echo", f"value={each}") for each in range(2)]
    start(alone, *SHOP, "echo", "value=2")
    put_aside(places, *aside)

    listed = alone("runs", "--state", "quarantined", "--json").json()
    queues = alone("queues").out

    assert [str(each["run"]) for each in listed] == aside[::-1]
    assert queues.splitlines()[0].endswith("workers  quarantined")
    assert re.match(r"default  echo +1 .* none +2$", queues.splitlines()[1])
    assert "2 in quarantine, not retried until they are released; see `rota quarantine`" in queues
    assert alone("queues", "--json").json()[0]["quarantined"] == 2


def test_what_is_only_in_quarantine_waits_for_no_worker(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    put_aside(places, start(alone, *SHOP, "echo", "value=1"))

    done = alone("queues")

    assert done.out.startswith("no queue has queued jobs\n")
    assert "no worker serves" not in done.out
    assert [(each["queued"], each["quarantined"]) for each in alone("queues", "--json").json()] == [
        (0, 1)
    ]


def test_a_flow_shows_its_job_in_quarantine_and_how_to_go_on(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    run = start(alone, *MILL, "lonely")
    [first, _] = alone("show", run, "--json").json()["jobs"]
    job = str(first["job"])
    put_aside(places, job)

    shown = alone("show", run).out

    assert "2 jobs: 1 quarantined, 1 waiting" in shown
    assert re.search(rf"⊠ first #{job} +quarantined  for \d+ s, attempt 4", shown)
    assert shown.endswith(
        f"1 job is in quarantine: `rota release {run}` retries it, `rota cancel {job}` ends it\n"
    )
    [listed] = alone("quarantine", "--json").json()
    assert (str(listed["job"]), str(listed["run"])) == (job, run)


# Actions


def test_a_job_a_run_or_all_of_them_are_released(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    runs = [start(alone, *MILL, "lonely") for _ in range(3)]
    jobs = [str(alone("show", run, "--json").json()["jobs"][0]["job"]) for run in runs]
    alike = start(alone, *SHOP, "echo", "value=1")
    put_aside(places, *jobs, alike)

    assert alone("release", jobs[0]).out == (
        f"job {jobs[0]} of run {runs[0]} is queued for a retry\n"
    )
    assert alone("release", runs[1]).out == f"run {runs[1]} is queued for a retry\n"
    assert alone("release", "--all", "--queue", "nobody").out == ("1 job is queued for a retry\n")
    assert [state(alone, job) for job in jobs] == ["queued"] * 3
    assert state(alone, alike) == "quarantined"
    assert alone("release", "--all", "--task", "x").out == "no job in quarantine matches\n"
    assert alone("release", "--all").out == "1 job is queued for a retry\n"
    assert alone("release", "--all").out == "no job is in quarantine\n"
    assert state(alone, alike) == "queued"


def test_several_jobs_of_a_run_are_released_at_once(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    run = start(alone, *MILL, "fan")
    parts = [str(each["job"]) for each in alone("show", run, "--json").json()["jobs"]]
    # Queue a second job, so that two jobs of the run can be quarantined.
    places.execute(
        "with gone as (delete from rota.waiting where job = %s returning *)"
        " insert into rota.queued (seq, job, priority, queue, task)"
        " select job, job, priority, queue, task from gone",
        [int(parts[1])],
    )
    put_aside(places, *parts[:2])

    assert alone("release", run).out == f"2 jobs of run {run} are queued for a retry\n"


def test_what_is_not_in_quarantine_is_not_released(alone: Rota) -> None:
    run = start(alone, *SHOP, "echo", "value=1")

    done = alone("release", run)
    nothing = alone("release", "999999999")

    assert (done.code, nothing.code) == (NOT_FOUND, NOT_FOUND)
    assert done.complaint == f"run {run} is not in quarantine: it is queued"
    assert nothing.complaint == "there is no run 999999999"
    for words in ((), ("--all", run), ("--task", "echo", run)):
        assert alone("release", *words).code == USAGE_ERROR


def test_a_job_in_quarantine_is_cancelled_but_not_retried(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    run = start(alone, *SHOP, "echo", "value=1")
    put_aside(places, run)

    retried = alone("retry", run)

    assert (retried.code, retried.complaint) == (
        FAILED,
        f"run {run} is quarantined; release it instead",
    )
    assert alone("cancel", run).out == f"run {run} is cancelled\n"
    assert state(alone, run) == "cancelled"
    assert alone("quarantine").out == "no job is in quarantine\n"


async def test_a_program_does_the_same(
    alone: Rota, empty_dsn: str, places: psycopg.Connection[Any]
) -> None:
    id = places.execute("select run from rota.start('echo')").fetchone()
    assert id
    put_aside(places, str(id[0]))
    async with App(empty_dsn) as app:
        run = app.run(id[0])

        assert await run.status() == "quarantined"
        assert await run.release() == 1
        assert await run.status() == "queued"
        assert await run.release() == 0
        with pytest.raises(RunNotFound):
            await app.run(999999999).release()


def test_a_program_that_does_not_await_does_it_too(
    alone: Rota, empty_dsn: str, places: psycopg.Connection[Any]
) -> None:
    run = start(alone, *SHOP, "echo", "value=1")
    put_aside(places, run)
    app = App(empty_dsn)
    try:
        assert SyncRun(app, app.run(int(run))).release() == 1
    finally:
        app.close_sync()
    assert state(alone, run) == "queued"


# Lost and retried


def test_a_job_that_was_lost_with_a_worker_says_that_it_is_taken_by_itself(
    alone: Rota, places: psycopg.Connection[Any]
) -> None:
    run = start(alone, *SHOP, "echo", "value=1")
    places.execute(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity)"
        " values ('h', 1, '', '{default}', '{echo}', 1)"
    )
    assert "it waits its turn; a worker can claim it" in alone("show", run).out

    places.execute("update rota.queued set lost = -3")

    assert "it was lost with a worker, so it is claimed alone; a worker can claim it" in (
        alone("show", run).out
    )
    shown = alone("show", run, "--json").json()
    assert (shown["is_suspect"], shown["crashes"]) == (True, 1)
