"""`rota explain` and `GET /runs/{run}/explain`: output by role, and exit codes."""

from __future__ import annotations

import json

import psycopg
import pytest

from rota.cli import main
from rota.cli.exit_codes import FAILED, NOT_FOUND, OK, USAGE_ERROR
from support.site_client import SECRET, SiteClient, make_site_app
from support.stage import EMPTY

PARTS = ("health", "api", "dashboard")


@pytest.fixture
def dsn(explain_dsn: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ROTA_DATABASE_URL", explain_dsn)
    with psycopg.connect(explain_dsn, autocommit=True) as connection:
        connection.execute(EMPTY.encode())
    return explain_dsn


def insert_quarantined_job(dsn: str) -> int:
    """Insert a quarantined job with an error that a viewer may not see in full."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute("select run from rota.start('greet', '{\"name\": \"Ada\"}')")
        [id] = row.fetchone() or [0]
        connection.execute(
            "with gone as (delete from rota.queued returning *)"
            " insert into rota.quarantine (job, priority, attempt, crashes, queue, task, error)"
            " select job, priority, 4, -5, queue, task,"
            "        json_build_object('type', 'rota.errors.WorkerLost', 'message', %s::text) from gone",
            (SECRET,),
        )
    return int(id)


def test_explain_command_stuck_run_prints_remedy_and_fails(
    dsn: str, capfd: pytest.CaptureFixture[str]
) -> None:
    id = insert_quarantined_job(dsn)

    code = main.run(["explain", str(id)])

    said = capfd.readouterr().out
    assert code == FAILED
    assert f"run {id} (greet) stuck" in said
    assert "it is in quarantine" in said
    assert SECRET in said
    assert f"remedy  `rota release {id}`" in said


def test_explain_command_waiting_run_exits_with_zero(
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


def test_explain_command_unknown_or_invalid_run_has_own_exit_code(dsn: str) -> None:
    assert main.run(["explain", "4711"]) == NOT_FOUND
    assert main.run(["explain", "none"]) == USAGE_ERROR


async def test_explain_api_viewer_does_not_see_error_details(dsn: str) -> None:
    id = insert_quarantined_job(dsn)
    async with make_site_app(dsn) as app, SiteClient(app) as visitors:
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


async def test_run_page_explanation_hides_error_details_from_viewer(dsn: str) -> None:
    id = insert_quarantined_job(dsn)
    async with make_site_app(dsn) as app, SiteClient(app, parts=PARTS) as visitors:
        shown = await visitors.ask("GET", f"/runs/{id}", who="operator")
        viewed = await visitors.ask("GET", f"/runs/{id}", who="viewer")

    for answer in (shown, viewed):
        assert "it is in quarantine" in answer.text
        assert f"<code>rota release {id}</code> retries it" in answer.text
    assert SECRET in shown.text
    assert SECRET not in viewed.text
