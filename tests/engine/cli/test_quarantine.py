"""`rota quarantine` and `release`, and the other commands' output about jobs lost with workers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.app.sync import SyncRun
from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from rota.errors import RunNotFound
from support.cli_fixtures import Rota

SHOP = ("-a", "shop:app")
MILL = ("-a", "mill:app")


@pytest.fixture
def sql(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        yield connection


def start(rota: Rota, *words: str) -> str:
    return rota("start", *words).out.splitlines()[0]


def move_to_quarantine(places: psycopg.Connection[Any], *jobs: str) -> None:
    """Move jobs to quarantine as if three workers had died running each of them."""
    for job in map(int, jobs):
        places.execute(
            "with gone as (delete from rota.queued where job = %(job)s returning *)"
            " insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)"
            " select job, priority, 4, 3, queue, task, %(error)s from gone",
            {
                "job": job,
                "error": '{"type": "rota.errors.WorkerLost", "message": '
                '"3 workers were lost while they ran it"}',
            },
        )


def state(rota: Rota, run: str) -> object:
    return rota("show", run, "--json").json()["state"]


# A job that kills its worker


# Listing


def test_quarantine_command_filters_and_pages(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    ids = [start(empty_rota, *SHOP, "echo", f"value={each}") for each in range(2)]
    ids.append(start(empty_rota, *SHOP, "resize", "path=a"))
    move_to_quarantine(sql, *ids)

    first = empty_rota("quarantine", "--limit", "2", "--json").json()["jobs"]
    second = empty_rota("quarantine", "--after", str(first[-1]["job"]), "--json").json()["jobs"]

    assert [str(each["job"]) for each in first + second] == ids
    for words in (("--task", "resize"), ("--queue", "images")):
        assert [
            each["task"] for each in empty_rota("quarantine", *words, "--json").json()["jobs"]
        ] == ["resize"]
    assert empty_rota("quarantine", "--task", "x").out == "no job in quarantine matches\n"
    assert first[0]["crashes"] == 3
    assert (
        empty_rota("quarantine")
        .out.splitlines()[1]
        .endswith("3 workers were lost while they ran it")
    )


def test_runs_and_queues_commands_list_quarantined_jobs(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    aside = [start(empty_rota, *SHOP, "echo", f"value={each}") for each in range(2)]
    start(empty_rota, *SHOP, "echo", "value=2")
    move_to_quarantine(sql, *aside)

    listed = empty_rota("runs", "--state", "quarantined", "--json").json()["runs"]
    queues = empty_rota("queues").out

    assert [str(each["run"]) for each in listed] == aside[::-1]
    assert queues.splitlines()[0].endswith("workers  quarantined")
    assert re.match(r"default  echo +1 .* none +2$", queues.splitlines()[1])
    assert "2 in quarantine, not retried until they are released; see `rota quarantine`" in queues
    assert empty_rota("queues", "--json").json()["queues"][0]["quarantined"] == 2


def test_queues_command_quarantined_jobs_give_no_worker_warning(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    move_to_quarantine(sql, start(empty_rota, *SHOP, "echo", "value=1"))

    done = empty_rota("queues")

    assert done.out.startswith("no queue has queued jobs\n")
    assert "no worker serves" not in done.out
    assert [
        (each["queued"], each["quarantined"])
        for each in empty_rota("queues", "--json").json()["queues"]
    ] == [(0, 1)]


def test_show_flow_with_quarantined_job_prints_remedies(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    run = start(empty_rota, *MILL, "lonely")
    [first, _] = empty_rota("show", run, "--json").json()["jobs"]
    job = str(first["job"])
    move_to_quarantine(sql, job)

    shown = empty_rota("show", run).out

    assert "2 jobs: 1 quarantined, 1 waiting" in shown
    assert re.search(rf"⊠ first #{job} +quarantined  for \d+ s, attempt 4", shown)
    assert shown.endswith(
        f"1 job is in quarantine: `rota release {run}` retries it, `rota cancel {job}` ends it\n"
    )
    [listed] = empty_rota("quarantine", "--json").json()["jobs"]
    assert (str(listed["job"]), str(listed["run"])) == (job, run)


# Actions


def test_release_command_accepts_job_run_or_all(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    runs = [start(empty_rota, *MILL, "lonely") for _ in range(3)]
    jobs = [str(empty_rota("show", run, "--json").json()["jobs"][0]["job"]) for run in runs]
    alike = start(empty_rota, *SHOP, "echo", "value=1")
    move_to_quarantine(sql, *jobs, alike)

    assert empty_rota("release", jobs[0]).out == (
        f"job {jobs[0]} of run {runs[0]} is queued for a retry\n"
    )
    assert empty_rota("release", runs[1]).out == f"run {runs[1]} is queued for a retry\n"
    assert empty_rota("release", "--all", "--queue", "nobody").out == (
        "1 job is queued for a retry\n"
    )
    assert [state(empty_rota, job) for job in jobs] == ["queued"] * 3
    assert state(empty_rota, alike) == "quarantined"
    assert empty_rota("release", "--all", "--task", "x").out == "no job in quarantine matches\n"
    assert empty_rota("release", "--all").out == "1 job is queued for a retry\n"
    assert empty_rota("release", "--all").out == "no job is in quarantine\n"
    assert state(empty_rota, alike) == "queued"


def test_release_command_releases_all_jobs_of_a_run(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    run = start(empty_rota, *MILL, "fan")
    parts = [str(each["job"]) for each in empty_rota("show", run, "--json").json()["jobs"]]
    # Queue a second job, so that two jobs of the run can be quarantined.
    sql.execute(
        "with gone as (delete from rota.waiting where job = %s returning *)"
        " insert into rota.queued (seq, job, priority, queue, task)"
        " select job, job, priority, queue, task from gone",
        [int(parts[1])],
    )
    move_to_quarantine(sql, *parts[:2])

    assert empty_rota("release", run).out == f"2 jobs of run {run} are queued for a retry\n"


def test_release_command_job_outside_quarantine_is_refused(empty_rota: Rota) -> None:
    run = start(empty_rota, *SHOP, "echo", "value=1")

    done = empty_rota("release", run)
    nothing = empty_rota("release", "999999999")

    assert (done.code, nothing.code) == (NOT_FOUND, NOT_FOUND)
    assert done.complaint == f"run {run} is not in quarantine: it is queued"
    assert nothing.complaint == "there is no run 999999999"
    for words in ((), ("--all", run), ("--task", "echo", run)):
        assert empty_rota("release", *words).code == USAGE_ERROR


def test_cancel_quarantined_job_works_but_retry_is_refused(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    run = start(empty_rota, *SHOP, "echo", "value=1")
    move_to_quarantine(sql, run)

    retried = empty_rota("retry", run)

    assert (retried.code, retried.complaint) == (
        FAILED,
        f"run {run} is quarantined; release it instead",
    )
    assert empty_rota("cancel", run).out == f"run {run} is cancelled\n"
    assert state(empty_rota, run) == "cancelled"
    assert empty_rota("quarantine").out == "no job is in quarantine\n"


async def test_run_release_requeues_quarantined_job(
    empty_rota: Rota, empty_dsn: str, sql: psycopg.Connection[Any]
) -> None:
    id = sql.execute("select run from rota.start('echo')").fetchone()
    assert id
    move_to_quarantine(sql, str(id[0]))
    async with App(empty_dsn) as app:
        run = app.run(id[0])

        assert await run.status() == "quarantined"
        assert await run.release() == 1
        assert await run.status() == "queued"
        assert await run.release() == 0
        with pytest.raises(RunNotFound):
            await app.run(999999999).release()


def test_sync_run_release_requeues_quarantined_job(
    empty_rota: Rota, empty_dsn: str, sql: psycopg.Connection[Any]
) -> None:
    run = start(empty_rota, *SHOP, "echo", "value=1")
    move_to_quarantine(sql, run)
    app = App(empty_dsn)
    try:
        assert SyncRun(app, app.run(int(run))).release() == 1
    finally:
        app.close_sync()
    assert state(empty_rota, run) == "queued"


# Lost and retried


def test_show_suspect_job_mentions_the_exclusive_claim(
    empty_rota: Rota, sql: psycopg.Connection[Any]
) -> None:
    run = start(empty_rota, *SHOP, "echo", "value=1")
    sql.execute(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity)"
        " values ('h', 1, '', '{default}', '{echo}', 1)"
    )
    assert "it is the next of its queue; 1 worker would take it" in empty_rota("show", run).out

    sql.execute("update rota.queued set crashes = 1, suspicion = 'mild'")

    assert "it is queued and was lost with a worker, so it is claimed by itself" in (
        empty_rota("show", run).out
    )
    shown = empty_rota("show", run, "--json").json()
    assert (shown["is_suspect"], shown["crashes"]) == (True, 1)
