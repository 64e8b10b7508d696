"""Operations answer alike on every surface: the command line, the HTTP API and the pages."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest

from rota import Rota
from rota.web.site import ALL_PARTS
from support.site_client import SiteClient

V1 = "/api/v1"


async def test_list_workers_late_heartbeat_is_silent(site_client: SiteClient) -> None:
    host = f"host-{uuid4().hex}"
    for pid, late, drained in ((1, "0 s", None), (2, "1 h", None), (3, "0 s", "now")):
        await site_client.sql(
            "insert into rota.workers"
            " (host, pid, version, queues, tasks, capacity, last_beat, drain_requested)"
            " values (%s, %s, '0', array['q'], array['t'], 10, rota.clock() - %s::interval, %s)",
            *(host, pid, late, drained),
        )

    found = await site_client.done("GET", f"{V1}/workers")

    states = {each["pid"]: each["state"] for each in found["workers"] if each["host"] == host}
    assert states == {1: "active", 2: "silent", 3: "draining"}
    await site_client.sql("delete from rota.workers where host = %s", host)


@pytest.mark.parametrize("path", [f"{V1}/alerts?limit=500", "/alerts"])
async def test_list_alerts_no_worker_evaluates_the_rules(
    page_client: SiteClient, path: str
) -> None:
    host = f"host-{uuid4().hex}"
    await page_client.sql("update rota.alert_rounds set at = rota.clock() - interval '61 s'")
    await page_client.sql(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, state, ended)"
        " values (%s, 1, '0', array['q'], array['t'], 10, 'dead', rota.clock())",
        host,
    )

    answer = await page_client.ask("GET", path)

    assert host in answer.text
    await page_client.sql("delete from rota.workers where host = %s", host)
    await page_client.sql("delete from rota.alerts where subject like %s", f"{host}%")


async def test_signal_run_repeated_signal_differs_from_ended_run(site_client: SiteClient) -> None:
    run = await site_client.start("approve")
    path = f"{V1}/runs/{run}/signals"

    answers = [await site_client.done("POST", path, json={"name": "answer"}) for _ in range(2)]
    await site_client.done("POST", f"{V1}/runs/{run}/cancel")
    answers.append(await site_client.done("POST", path, json={"name": "other"}))

    assert [(each["sent"], each["status"]) for each in answers] == [
        (True, "sent"),
        (False, "known"),
        (False, "ended"),
    ]


async def test_show_run_result_of_skipped_task_is_null(site_dsn: str) -> None:
    app = Rota(site_dsn)
    flow = app.flow("harvest")

    @flow.task
    async def pick() -> int:
        return 3

    @flow.task(skip_if=lambda pick: pick > 0)
    async def complain(pick: int) -> int:
        return pick

    @flow.task
    async def press(pick: int) -> int:
        return pick * 2

    async with app, SiteClient(app, parts=ALL_PARTS) as client, app.worker():
        run = await flow.start()
        result = await run.result(timeout=60)
        shown = await client.done("GET", f"{V1}/runs/{run.id}")
        page = await client.ask("GET", f"/runs/{run.id}")

    assert result == {"complain": None, "press": 6}
    assert shown["result"] == result
    assert "&#34;complain&#34;: null" in page.text


async def test_release_lock_asserted_lock_names_the_transaction(
    site_client: SiteClient, site_dsn: str
) -> None:
    name = f"lock {uuid4()}"
    await site_client.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " values (%s, 0, 17, gen_random_uuid(), 'web-1', 4242, now(), now() + interval '1 h')",
        name,
    )
    async with await psycopg.AsyncConnection.connect(
        site_dsn, application_name="shop"
    ) as asserting:
        await asserting.execute("select rota.assert_lock(%s, 17)", [name])

        answer = await site_client.ask("POST", f"{V1}/locks/{name}/release", json={})

        await asserting.rollback()
    assert answer.status_code == 409
    message = answer.json()["error"]["message"]
    assert "was not released: an open transaction asserts it: server process" in message
    assert "(shop, user" in message
