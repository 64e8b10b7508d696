"""`rota explain` and `GET /runs/{run}/explain`: output by role, and exit codes."""

from __future__ import annotations

import json

import psycopg
import pytest

from rota.cli import main
from rota.cli.exit_codes import FAILED, NOT_FOUND, OK, USAGE_ERROR
from store.stage import EMPTY
from web.visitors import SECRET, Visitors, shop

PARTS = ("health", "api", "dashboard")


@pytest.fixture
def dsn(why_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ROTA_DATABASE_URL", why_dsn)
    with psycopg.connect(why_dsn, autocommit=True) as connection:
        connection.execute(EMPTY.encode())
    return why_dsn


def planted(dsn: str) -> int:
    """Insert a quarantined job with an error that a viewer may not see in full."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select run from rota.start('greet', '{\"name\": \"Ada\"}')")
        [id] = row.fetchone() or [0]
        connection.execute(
            "with gone as (delete from rota.queued returning *)"
            " insert into rota.quarantine (job, priority, attempt, lost, queue, task, error)"
            " select job, priority, 4, -5, queue, task,"
            "        json_build_object('type', 'rota.errors.WorkerLost', 'message', %s::text) from gone",
            (SECRET,),
        )
    return int(id)


def test_it_says_why_and_ends_with_one_where_somebody_has_to_do_something(
    dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    id = planted(dsn)

    code = main.run(["explain", str(id)])

    said = capfd.readouterr().out
    assert code == FAILED
    assert f"run {id} (greet) stuck" in said
    assert "it is in quarantine" in said
    assert SECRET in said
    assert f"remedy  `rota release {id}`" in said


def test_it_ends_with_zero_where_it_goes_on_by_itself(
    dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select run from rota.start('greet', delay => '1 hour')")
        [id] = row.fetchone() or [0]

    assert main.run(["explain", str(id)]) == OK
    said = capfd.readouterr().out
    assert "it was started for later; until" in said
    assert "in 59 min" in said or "in 1 h" in said

    assert main.run(["explain", str(id), "--json"]) == OK
    document = json.loads(capfd.readouterr().out)
    assert document["status"] == "waiting"
    assert [each["code"] for each in document["reasons"]] == ["delay"]
    assert document["reasons"][0]["until"] is not None


def test_mistakes_have_codes_of_their_own(dsn: str) -> None:
    assert main.run(["explain", "4711"]) == NOT_FOUND
    assert main.run(["explain", "none"]) == USAGE_ERROR


async def test_viewers_are_told_why_and_not_what_errors_say(dsn: str) -> None:
    id = planted(dsn)
    async with shop(dsn) as app, Visitors(app) as visitors:
        shown = await visitors.ask("GET", f"/api/v1/runs/{id}/explain", who="operator")
        viewed = await visitors.ask("GET", f"/api/v1/runs/{id}/explain", who="viewer")
        unknown = await visitors.ask("GET", "/api/v1/runs/4711/explain", who="viewer")

    [reason] = shown.json()["reasons"]
    assert reason["code"] == "quarantined"
    assert reason["job"] == str(id)
    assert reason["detail"] == SECRET
    assert viewed.status_code == 200
    assert "detail" not in viewed.json()["reasons"][0]
    assert SECRET not in viewed.text
    assert unknown.status_code == 404


async def test_the_page_of_a_run_says_the_same(dsn: str) -> None:
    id = planted(dsn)
    async with shop(dsn) as app, Visitors(app, parts=PARTS) as visitors:
        shown = await visitors.ask("GET", f"/runs/{id}", who="operator")
        viewed = await visitors.ask("GET", f"/runs/{id}", who="viewer")

    for answer in (shown, viewed):
        assert "it is in quarantine" in answer.text
        assert f"<code>rota release {id}</code> retries it" in answer.text
    assert SECRET in shown.text
    assert SECRET not in viewed.text
