"""`rota check-deploy`: tasks and arguments of jobs in flight, and how many of them are checked."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rota import Rota as App
from rota.cli.exit_codes import FAILED, NO_DATABASE, USAGE_ERROR
from support.check_deploy_helpers import (
    OTHER,
    Deploy,
    make_deploy,
    note,
    report_of,
    run_until_suspended,
    start_onboarding,
)
from support.cli_fixtures import Rota


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    return make_deploy(tmp_path, monkeypatch)


# Names and arguments


def test_check_deploy_removed_tasks_are_listed_with_job_counts(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        resize = app.task(name="resize")(note)
        flow = app.flow("etl")

        @flow.task
        async def extract(day: str) -> str:
            return day

        @flow.task
        async def load(extract: str) -> None: ...

        await app.start_many([resize.options(delay=timedelta(days=1)).bind("x") for _ in range(3)])
        await flow.options(delay=timedelta(days=1)).start(day="monday")

    run_until_suspended(empty_dsn, starting)
    code = """
    resizes = app.task(name="resizes")(note)
    etl = app.flow("etl")

    @etl.task
    async def extract(day: str) -> str:
        return day
    """

    checked = empty_rota("check-deploy", deploy(code), "--json")
    report = report_of(checked)

    assert (checked.code, report["stranded_count"]) == (FAILED, 4)
    assert [(each["task"], each["problem"], each["jobs"]) for each in report["stranded_jobs"]] == [
        ("resize", "task", 3),
        ("etl.load", "task", 1),
    ]
    assert report["stranded_jobs"][0]["reason"] == "new:app has 'resizes', but no 'resize'"
    table = empty_rota("check-deploy", deploy(code))
    assert "unknown task" in table.out
    assert table.complaint == "4 jobs would strand with new:app"


def test_check_deploy_mismatched_arguments_are_listed(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        @app.task
        async def remind(user: int, text: str = "") -> None: ...

        @app.task
        async def charge(amount: int) -> None: ...

        later = timedelta(days=1)
        await remind.options(delay=later).start(user=1)
        await charge.options(delay=later).start(amount=5)
        await charge.options(delay=later).start(amount=6)

    run_until_suspended(empty_dsn, starting)
    code = """
    @app.task
    async def remind(user: int, locale: str) -> None: ...
    @app.task
    async def charge(amount: str, currency: str = "EUR") -> None: ...
    """

    report = report_of(empty_rota("check-deploy", deploy(code), "--json"))

    assert [(each["task"], each["jobs"], each["reason"]) for each in report["stranded_jobs"]] == [
        ("charge", 2, "Expected `str`, got `int` (in amount)"),
        ("remind", 1, "Object missing required field `locale`"),
    ]


def test_check_deploy_mismatched_result_of_predecessor_fails(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        flow = app.flow("etl")

        @flow.task
        async def extract(day: str) -> str:
            return day

        flow.sleep("rest", timedelta(days=1), after=[extract])

        @flow.task(after=["rest"])
        async def load(extract: str, day: str) -> None: ...

        @flow.task
        async def tell(load: None) -> None: ...

        await flow.start(day="monday")

    run_until_suspended(empty_dsn, starting)
    code = """
    etl = app.flow("etl")
    @etl.task
    async def extract(day: str) -> {kind}:
        return day
    etl.sleep("rest", timedelta(days=1), after=[extract])
    @etl.task(after=["rest"])
    async def load(extract: {kind}, day: str) -> None: ...
    @etl.task
    async def tell(load: None) -> None: ...
    """

    assert empty_rota("check-deploy", deploy(code.format(kind="str"))).code == 0
    checked = empty_rota("check-deploy", deploy(code.format(kind="int")))

    assert checked.code == FAILED
    assert "etl.load" in checked.out
    assert "(in extract)" in checked.out


# Limits of the check


def test_check_deploy_limit_is_reported_in_the_output(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        task = app.task(name="many")(note)
        await app.start_many([task.options(delay=timedelta(days=1)).bind(str(n)) for n in range(5)])

    run_until_suspended(empty_dsn, starting)
    code = deploy('many = app.task(name="many")(note)')

    checked = empty_rota("check-deploy", code, "--limit", "2")

    assert checked.code == 0
    assert "checked 2 jobs of 1 task" in checked.out
    assert (
        "of the 5 jobs of many only 2 were checked, the running ones and the oldest" in checked.out
    )
    assert "and the newest" in empty_rota("check-deploy", code, "--limit", "2", "--newest").out


def test_check_deploy_limit_selects_oldest_or_newest_jobs(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        @app.task(name="many")
        async def many(what: Any) -> None: ...

        later = timedelta(days=1)
        await app.start_many([many.options(delay=later).bind(each) for each in (1, "a", "b")])

    run_until_suspended(empty_dsn, starting)
    code = deploy('many = app.task(name="many")(note)')

    assert empty_rota("check-deploy", code, "--limit", "1").code == FAILED
    assert empty_rota("check-deploy", code, "--limit", "1", "--newest").code == 0


def test_check_deploy_quarantined_jobs_are_listed_but_do_not_fail(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    run = run_until_suspended(empty_dsn, start_onboarding)
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute(
            "with gone as (delete from rota.sleeping returning *)"
            " insert into rota.quarantine (job, priority, attempt, crashes, queue, task)"
            " select job, priority, attempt, crashes, queue, task from gone"
        )

    checked = empty_rota("check-deploy", deploy(OTHER))

    assert (checked.code, checked.err) == (0, "")
    assert f"{run}  history does not fit  reached step 'greet'" in checked.out
    assert "1 job in quarantine would not continue either" in checked.out


def test_check_deploy_job_in_undeclared_queue_is_mentioned(
    empty_rota: Rota, empty_dsn: str, deploy: Deploy
) -> None:
    async def starting(app: App) -> None:
        task = app.task(name="paint", queue="images")(note)
        await task.options(delay=timedelta(days=1)).start("x")

    run_until_suspended(empty_dsn, starting)

    checked = empty_rota("check-deploy", deploy('paint = app.task(name="paint")(note)'))

    assert checked.code == 0
    assert "1 job of paint: in queue 'images', which is not the queue of any task of new:app" in (
        checked.out
    )


def test_check_deploy_nothing_in_flight_passes(empty_rota: Rota) -> None:
    checked = empty_rota("check-deploy", "shop:app")

    assert (checked.code, checked.out) == (0, "nothing is in flight\n")
    assert empty_rota("check-deploy", "shop:app", "--json").json() == {
        "app": "shop:app",
        "stranded_count": 0,
        "stranded_jobs": [],
        "tasks": [],
    }


def test_check_deploy_mistakes_and_missing_database_have_exit_codes(empty_rota: Rota) -> None:
    assert empty_rota("check-deploy").code == USAGE_ERROR
    assert empty_rota("check-deploy", "nothing:app").code == USAGE_ERROR
    nowhere = "postgresql://127.0.0.1:1/none"
    assert empty_rota("check-deploy", "shop:app", "--dsn", nowhere).code == NO_DATABASE
