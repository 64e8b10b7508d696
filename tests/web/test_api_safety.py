"""Malformed and oversized requests to the API, and audit rows that commit together with their actions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from rota import LockLost, Rota
from rota.store import audit, workers
from rota.web.api import router
from rota.web.api.router import RequestContext
from rota.web.tokens_auth import LocalAccess

from .visitors import SECRET, Visitors

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


async def jobs(visitors: Visitors) -> int:
    [[many]] = await visitors.sql("select count(*) from rota.jobs")
    return int(many)


# Sizes


async def test_ten_mebibytes_are_refused_and_leave_no_row(visitors: Visitors) -> None:
    before = await jobs(visitors)
    large = b'{"name": "greet", "input": {"name": "' + b"x" * (10 * 1024 * 1024) + b'"}}'
    headers = {"Content-Type": "application/json"}
    sent = 0

    async def in_parts() -> AsyncIterator[bytes]:
        nonlocal sent
        for at in range(0, len(large), 65536):
            sent += 1
            yield large[at : at + 65536]

    announced = {**headers, "Content-Length": str(len(large))}
    whole = await visitors.ask("POST", RUNS, headers=announced, content=in_parts())
    assert sent == 0  # rejected by its Content-Length, before any byte is read
    # Without a Content-Length the body is refused as soon as it exceeds the limit, before all of it is
    # read.
    parts = await visitors.ask("POST", RUNS, headers=headers, content=in_parts())
    for answer in (whole, parts):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert sent * 65536 < len(large) / 2
    assert await jobs(visitors) == before


async def test_what_is_larger_than_a_payload_may_be_is_refused_and_leaves_no_row(
    visitors: Visitors,
) -> None:
    before = await jobs(visitors)
    name = "x" * (visitors.app.settings.payload_limit + 1)
    answer = await visitors.ask("POST", RUNS, json={"name": "greet", "input": {"name": name}})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert await jobs(visitors) == before


@pytest.mark.parametrize("depth", [950, 5_000, 200_000])
async def test_what_is_nested_without_end_is_refused(visitors: Visitors, depth: int) -> None:
    run = await visitors.start("approve")
    body = b'{"name": "deep", "payload": ' + b"[" * depth + b"]" * depth + b"}"
    headers = {"Content-Type": "application/json"}
    answer = await visitors.ask("POST", f"{RUNS}/{run}/signals", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


@pytest.mark.parametrize("body", [b"{", b"\xff", b'{"name": NaN}', b'"\\ud800"', b"{}{}"])
async def test_what_is_no_json_is_refused(visitors: Visitors, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await visitors.ask("POST", RUNS, headers=headers, content=body)
    assert answer.status_code in (400, 422), answer.text


# Time


async def test_a_body_that_never_comes_is_given_up(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "BODY_TIMEOUT_SECONDS", 0.05)

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    headers = {"Content-Type": "application/json"}
    answer = await visitors.ask("POST", RUNS, headers=headers, content=endless())
    assert (answer.status_code, answer.json()["error"]["code"]) == (408, "too_slow")


async def test_a_question_that_takes_the_database_too_long_is_ended_there(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "READ_TIMEOUT_SECONDS", 0.05)
    async with (await visitors.app.open()).database.transaction() as connection:
        await connection.execute("lock table rota.runs in access exclusive mode")
        answer = await visitors.ask("GET", RUNS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "too_slow")
    monkeypatch.undo()
    await visitors.done("GET", RUNS)


async def test_without_a_database_it_says_so_and_not_where_that_is() -> None:
    async with Rota("postgresql://127.0.0.1:1/nowhere", outage_timeout=0.1) as app:
        visitors = Visitors(app, auth=LocalAccess())
        for method, path in (("GET", RUNS), ("POST", f"{RUNS}/1/cancel")):
            answer = await visitors.ask(method, path, json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
            assert answer.headers["retry-after"] == "1"
            assert "127.0.0.1" not in answer.text


# Names are data


@pytest.mark.parametrize("name", MALICE)
async def test_whatever_a_name_looks_like_it_is_only_a_name(visitors: Visitors, name: str) -> None:
    before = await jobs(visitors)
    for path in ("runs", "schedules", "quarantine", "locks"):
        word = {"runs": "name", "schedules": "tenant", "quarantine": "task", "locks": "name"}[path]
        found = await visitors.done("GET", f"{V1}/{path}", params={word: name})
        assert not any(found.values())
    own = f"{name} {uuid4()}"
    schedule = {"name": own, "task": "greet", "every": 3600, "input": {"name": name}, "tenant": own}
    made = await visitors.done("POST", f"{V1}/schedules", json=schedule)
    assert made["name"] == own
    listed = await visitors.done("GET", f"{V1}/schedules", params={"tenant": own})
    assert [each["input"] for each in listed["schedules"]] == [{"name": name}]
    run = await visitors.start("greet", input={"name": name}, key=own)
    shown = await visitors.done("GET", f"{RUNS}/{run}")
    assert (shown["key"], shown["input"]) == (own, {"name": name})
    assert await jobs(visitors) == before + 1


# Logs


async def test_no_payload_and_no_token_is_logged(
    visitors: Visitors, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"name": "greet", "input": {"name": SECRET}}
    run = await visitors.start("greet", input={"name": SECRET})
    await visitors.done("GET", f"{RUNS}/{run}")
    signal = {"name": "x", "payload": SECRET}
    await visitors.done("POST", f"{RUNS}/{run}/signals", json=signal)
    await visitors.ask("POST", RUNS, json={"name": "greet", "input": {"name": [SECRET]}})
    await visitors.ask("POST", RUNS, headers={"Authorization": f"Bearer {SECRET}"}, json=body)

    async def broken(context: RequestContext, **more: Any) -> Any:
        raise RuntimeError(f"could not read {SECRET}")

    visitors.site = _with(visitors.app, "start_run", broken)
    answer = await visitors.ask("POST", RUNS, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal")
    assert SECRET not in answer.text
    logged = "\n".join(caplog.messages) + caplog.text
    assert "RuntimeError" in logged  # the type is logged, the message is not
    assert SECRET not in logged
    for each in visitors.passes.values():
        assert each not in logged


def _with(app: Rota, name: str, handler: Any) -> Any:
    """Return the site with one of its routes served by `handler`."""
    from dataclasses import replace

    from rota.web import api
    from rota.web.site import site

    kept = list(api.OPERATIONS)
    api.OPERATIONS[:] = [
        replace(each, handler=handler) if each.name == name else each for each in kept
    ]
    try:
        return site(app)
    finally:
        api.OPERATIONS[:] = kept


# Audit


async def entries(visitors: Visitors, since: int) -> list[tuple[str, str, str]]:
    database = (await visitors.app.open()).database
    found = await database.run(audit.entries(500))
    return [(each.operator, each.action, each.subject) for each in found if each.id > since][::-1]


async def last_entry(visitors: Visitors) -> int:
    [[id]] = await visitors.sql("select coalesce(max(id), 0) from rota.audit")
    return int(id)


async def test_what_somebody_does_is_written_down_with_his_name(visitors: Visitors) -> None:
    run, cancelled = [await visitors.start("approve") for _ in range(2)]
    name, lock = f"schedule {uuid4()}", f"lock {uuid4()}"
    [worker] = await (await visitors.app.open()).database.run(
        workers.register("host", 1, "0", ["default"], ["work"], 10)
    )
    await visitors.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " values (%s, 0, 17, gen_random_uuid(), 'web-1', 4242, now(), now() + interval '1 h')",
        lock,
    )
    before = await last_entry(visitors)
    schedule = {"name": name, "task": "greet", "every": 3600, "input": {"name": "Ada"}}
    deeds: list[tuple[str, str, Any, str, str]] = [
        ("POST", f"{RUNS}/{run}/signals", {"name": "answer"}, "signal run", run),
        ("POST", f"{RUNS}/{cancelled}/cancel", None, "cancel run", cancelled),
        ("POST", f"{RUNS}/{cancelled}/retry", None, "retry run", cancelled),
        ("POST", f"{V1}/schedules", schedule, "create schedule", name),
        ("PATCH", f"{V1}/schedules/{name}", {"every": 60}, "update schedule", name),
        ("POST", f"{V1}/schedules/{name}/pause", {"reason": "so"}, "pause schedule", name),
        ("POST", f"{V1}/schedules/{name}/resume", None, "resume schedule", name),
        ("POST", f"{V1}/schedules/{name}/trigger", None, "trigger schedule", name),
        ("DELETE", f"{V1}/schedules/{name}", None, "delete schedule", name),
        ("POST", f"{V1}/workers/{worker}/drain", None, "drain worker", str(worker)),
        ("POST", f"{V1}/locks/{lock}/release", None, "release lock", lock),
    ]
    for method, path, body, _, _ in deeds:
        await visitors.done(method, path, json={} if body is None else body)
    token = await visitors.done("POST", f"{V1}/tokens", json={"name": "ci"})
    await visitors.done("DELETE", f"{V1}/tokens/{token['id']}")
    who = (await visitors.done("GET", f"{V1}/me"))["name"]
    assert await entries(visitors, before) == [
        *((who, action, subject) for _, _, _, action, subject in deeds),
        (who, "create token", token["id"]),
        (who, "revoke token", token["id"]),
    ]
    told = await visitors.done("GET", f"{V1}/audit?limit=2")
    assert [each["action"] for each in told["entries"]] == ["revoke token", "create token"]


async def test_what_did_nothing_is_not_written_down(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "Ada"})
    name = f"schedule {uuid4()}"
    schedule = {"name": name, "task": "greet", "every": 3600, "input": {"name": "Ada"}}
    await visitors.done("POST", f"{V1}/schedules", json=schedule)
    before = await last_entry(visitors)
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
        answer = await visitors.ask(method, path, json={})
        assert answer.status_code == status, (path, answer.text)
    again = await visitors.ask("POST", f"{V1}/schedules", json=schedule)
    assert again.status_code == 422
    assert await entries(visitors, before) == []


async def test_it_is_written_down_in_the_transaction_that_does_it(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "Ada"})
    await visitors.done("POST", f"{RUNS}/{run}/cancel")
    [[noted, done]] = await visitors.sql(
        "select audit.xmin::text, outcomes.xmin::text from rota.audit, rota.outcomes"
        " where audit.subject = %s and outcomes.job = %s",
        *(run, int(run)),
    )
    assert noted == done


async def test_a_deed_that_cannot_be_written_down_is_not_done(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "Ada"})
    await visitors.sql(
        "alter table rota.audit add constraint no_more check (subject <> %s)".replace(
            "%s", f"'{run}'"
        )
    )
    try:
        answer = await visitors.ask("POST", f"{RUNS}/{run}/cancel")
        assert answer.status_code == 500
        assert await visitors.app.run(int(run)).status() == "queued"
    finally:
        await visitors.sql("alter table rota.audit drop constraint no_more")


async def test_a_lock_is_taken_from_who_was_looked_at_and_from_nobody_else(
    visitors: Visitors, site_app: Rota
) -> None:
    """The lock changed its holder between the request for its state and the release."""
    name = "taken by look"
    async with site_app.lock(name) as first:
        seen = str(first.token)
    second = site_app.lock(name)
    await second.acquire()
    answer = await visitors.ask("POST", f"{V1}/locks/{name}/release", json={"token": seen})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert second.held
    [line] = (await visitors.done("GET", f"{V1}/locks?name={name}"))["locks"]
    assert (line["token"], line["held"]) == (str(second.token), True)
    for token in (str(2**63 - 1), "9" * 19):
        answer = await visitors.ask("POST", f"{V1}/locks/{name}/release", json={"token": token})
        assert answer.status_code == 409
    taken = await visitors.done(
        "POST", f"{V1}/locks/{name}/release", json={"token": str(second.token)}
    )
    assert taken["token"] == str(second.token)
    with pytest.raises(LockLost):
        await second.release()
