"""Malformed and oversized requests to the API, and audit rows that commit together with their actions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from rota import LockLost, Rota
from rota.operations import declare
from rota.operations.declare import OperationContext
from rota.store import audit
from rota.web.api import router
from rota.web.tokens_auth import LocalAccess
from support.site_client import SECRET, SiteClient

V1 = "/api/v1"
RUNS = f"{V1}/runs"

MALICE = [
    "'; drop table rota.jobs; --",
    "' or '1'='1",
    '"; delete from rota.jobs; --',
    "%s",
    "%(name)s",
    "\\'; select pg_sleep(10); --",
    "robert'); drop schema rota cascade; --",
    "<script>alert(1)</script>",
    "../../etc/passwd",
]


async def jobs(visitors: SiteClient) -> int:
    [[many]] = await visitors.sql("select count(*) from rota.jobs")
    return int(many)


# Sizes


async def test_start_run_ten_mebibyte_body_is_refused_before_all_is_read(
    site_client: SiteClient,
) -> None:
    before = await jobs(site_client)
    large = b'{"name": "greet", "input": {"name": "' + b"x" * (10 * 1024 * 1024) + b'"}}'
    headers = {"Content-Type": "application/json"}
    sent = 0

    async def in_parts() -> AsyncIterator[bytes]:
        nonlocal sent
        for at in range(0, len(large), 65536):
            sent += 1
            yield large[at : at + 65536]

    announced = {**headers, "Content-Length": str(len(large))}
    whole = await site_client.ask("POST", RUNS, headers=announced, content=in_parts())
    assert sent == 0  # rejected by its Content-Length, before any byte is read
    # Without a Content-Length the body is refused as soon as it exceeds the limit, before all of it is
    # read.
    parts = await site_client.ask("POST", RUNS, headers=headers, content=in_parts())
    for answer in (whole, parts):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert sent * 65536 < len(large) / 2
    assert await jobs(site_client) == before


async def test_start_run_input_above_payload_limit_is_refused(
    site_client: SiteClient,
) -> None:
    before = await jobs(site_client)
    name = "x" * (site_client.app.settings.payload_limit + 1)
    answer = await site_client.ask("POST", RUNS, json={"name": "greet", "input": {"name": name}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert await jobs(site_client) == before


@pytest.mark.parametrize("depth", [950, 5_000, 200_000])
async def test_signal_deeply_nested_payload_is_refused(site_client: SiteClient, depth: int) -> None:
    run = await site_client.start("approve")
    body = b'{"name": "deep", "payload": ' + b"[" * depth + b"]" * depth + b"}"
    headers = {"Content-Type": "application/json"}
    answer = await site_client.ask("POST", f"{RUNS}/{run}/signals", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"name": NaN}', b'"\\ud800"', b"{}{}"])
async def test_start_run_malformed_json_is_refused(site_client: SiteClient, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await site_client.ask("POST", RUNS, headers=headers, content=body)
    assert answer.status_code in (400, 422), answer.text


# Time


async def test_request_unfinished_body_times_out(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "BODY_TIMEOUT_SECONDS", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    headers = {"Content-Type": "application/json"}
    answer = await site_client.ask("POST", RUNS, headers=headers, content=endless())
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "too_slow")


async def test_runs_list_slow_query_times_out(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declare, "READ_TIMEOUT_SECONDS", 0.05)
    async with (await site_client.app.open()).database.transaction() as connection:
        await connection.execute("lock table rota.runs in access exclusive mode")
        answer = await site_client.ask("GET", RUNS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_slow")
    monkeypatch.undo()
    await site_client.done("GET", RUNS)


async def test_api_without_database_answers_503_without_its_address() -> None:
    async with Rota("postgresql://127.0.0.1:1/nowhere", outage_timeout=0.1) as app:
        visitors = SiteClient(app, auth=LocalAccess())
        for method, path in (("GET", RUNS), ("POST", f"{RUNS}/1/cancel")):
            answer = await visitors.ask(method, path, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
            assert answer.headers["retry-after"] == "1"
            assert "127.0.0.1" not in answer.text


# Names are data


@pytest.mark.parametrize("name", MALICE)
async def test_api_names_with_sql_or_html_are_stored_as_text(
    site_client: SiteClient, name: str
) -> None:
    before = await jobs(site_client)
    for path in ("runs", "schedules", "quarantine", "locks"):
        word = {"runs": "name", "schedules": "tenant", "quarantine": "task", "locks": "name"}[path]
        found = await site_client.done("GET", f"{V1}/{path}", params={word: name})
        assert not any(found.values())
    own = f"{name} {uuid4()}"
    schedule = {"name": own, "task": "greet", "every": 3600, "input": {"name": name}, "tenant": own}
    made = await site_client.done("POST", f"{V1}/schedules", json=schedule)
    assert made["name"] == own
    listed = await site_client.done("GET", f"{V1}/schedules", params={"tenant": own})
    assert [each["input"] for each in listed["schedules"]] == [{"name": name}]
    run = await site_client.start("greet", input={"name": name}, key=own)
    shown = await site_client.done("GET", f"{RUNS}/{run}")
    assert (shown["key"], shown["input"]) == (own, {"name": name})
    assert await jobs(site_client) == before + 1


# Logs


async def test_api_logs_contain_no_payload_and_no_token(
    site_client: SiteClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"name": "greet", "input": {"name": SECRET}}
    run = await site_client.start("greet", input={"name": SECRET})
    await site_client.done("GET", f"{RUNS}/{run}")
    signal = {"name": "x", "payload": SECRET}
    await site_client.done("POST", f"{RUNS}/{run}/signals", json=signal)
    await site_client.ask("POST", RUNS, json={"name": "greet", "input": {"name": [SECRET]}})
    await site_client.ask("POST", RUNS, headers={"Authorization": f"Bearer {SECRET}"}, json=body)

    async def broken(context: OperationContext, **more: Any) -> Any:
        raise RuntimeError(f"could not read {SECRET}")

    site_client.site = _site_with_handler(site_client.app, "start_run", broken)
    answer = await site_client.ask("POST", RUNS, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert SECRET not in answer.text
    logged = "\n".join(caplog.messages) + caplog.text
    assert "RuntimeError" in logged  # the type is logged, the message is not
    assert SECRET not in logged
    for each in site_client.passes.values():
        assert each not in logged


def _site_with_handler(app: Rota, name: str, handler: Any) -> Any:
    """Return the site with one of its routes served by `handler`."""
    from dataclasses import replace

    from rota.operations.table import OPERATIONS
    from rota.web.site import site

    kept = list(OPERATIONS)
    OPERATIONS[:] = [replace(each, handler=handler) if each.name == name else each for each in kept]
    try:
        return site(app)
    finally:
        OPERATIONS[:] = kept


# Audit


async def entries(visitors: SiteClient, since: int) -> list[tuple[str, str, str]]:
    database = (await visitors.app.open()).database
    found = await database.run(audit.entries(500))
    return [(each.operator, each.action, each.subject) for each in found if each.id > since][::-1]


async def last_audit_id(visitors: SiteClient) -> int:
    [[id]] = await visitors.sql("select coalesce(max(id), 0) from rota.audit")
    return int(id)


async def test_audit_action_without_effect_is_not_recorded(site_client: SiteClient) -> None:
    run = await site_client.start("greet", input={"name": "Ada"})
    name = f"schedule {uuid4()}"
    schedule = {"name": name, "task": "greet", "every": 3600, "input": {"name": "Ada"}}
    await site_client.done("POST", f"{V1}/schedules", json=schedule)
    before = await last_audit_id(site_client)
    for method, path, status in (
        ("POST", f"{RUNS}/{run}/retry", 409),
        ("POST", f"{RUNS}/999999999/cancel", 404),
        ("POST", f"{RUNS}/{run}/release", 200),
        ("POST", f"{V1}/schedules/{name}/resume", 200),
        ("DELETE", f"{V1}/schedules/nowhere {name}", 404),
        ("POST", f"{V1}/schedules/{name}", 405),
        ("POST", f"{V1}/workers/999999/drain", 404),
        ("POST", f"{V1}/locks/{name}/release", 404),
        ("DELETE", f"{V1}/tokens/nothere", 404),
    ):
        answer = await site_client.ask(method, path, json={})
        assert answer.status_code == status, (path, answer.text)
    again = await site_client.ask("POST", f"{V1}/schedules", json=schedule)
    assert again.status_code == 422
    assert await entries(site_client, before) == []


async def test_audit_row_is_written_in_the_transaction_of_its_action(
    site_client: SiteClient,
) -> None:
    run = await site_client.start("greet", input={"name": "Ada"})
    await site_client.done("POST", f"{RUNS}/{run}/cancel")
    [[noted, done]] = await site_client.sql(
        "select audit.xmin::text, outcomes.xmin::text from rota.audit, rota.outcomes"
        " where audit.action = 'cancel run' and audit.subject = %s and outcomes.job = %s",
        *(run, int(run)),
    )
    assert noted == done


async def test_audit_insert_failure_rolls_back_the_action(site_client: SiteClient) -> None:
    run = await site_client.start("greet", input={"name": "Ada"})
    await site_client.sql(
        "alter table rota.audit add constraint no_more"
        f" check (subject <> '{run}' or action = 'start run')"
    )
    try:
        answer = await site_client.ask("POST", f"{RUNS}/{run}/cancel")
        assert answer.status_code == 500
        assert await site_client.app.run(int(run)).status() == "queued"
    finally:
        await site_client.sql("alter table rota.audit drop constraint no_more")


async def test_lock_release_outdated_token_is_refused(
    site_client: SiteClient, site_app: Rota
) -> None:
    """The lock changed its holder between the request for its state and the release."""
    name = "taken by look"
    async with site_app.lock(name) as first:
        seen = str(first.token)
    second = site_app.lock(name)
    await second.acquire()
    answer = await site_client.ask("POST", f"{V1}/locks/{name}/release", json={"token": seen})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert second.held
    [line] = (await site_client.done("GET", f"{V1}/locks?name={name}"))["locks"]
    assert (line["token"], line["held"]) == (str(second.token), True)
    for token in (str(2**63 - 1), "9" * 19):
        answer = await site_client.ask("POST", f"{V1}/locks/{name}/release", json={"token": token})
        assert answer.status_code == 409
    taken = await site_client.done(
        "POST", f"{V1}/locks/{name}/release", json={"token": str(second.token)}
    )
    assert taken["token"] == str(second.token)
    with pytest.raises(LockLost):
        await second.release()
