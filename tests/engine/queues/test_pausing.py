"""Paused queues: no worker claims from them until they are resumed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psycopg
import pytest
from psycopg import AsyncConnection

from rota import ArgumentError, Retry, Rota
from rota.cli import main
from rota.cli.exit_codes import FAILED, NOT_FOUND, OK
from support.site_client import SiteClient, make_site_app

Database = AsyncConnection[Any]


async def fetch_count(db: Database, query: str) -> int:
    cursor = await db.execute(query.encode())
    [[count]] = await cursor.fetchall()
    return int(count)


async def test_paused_queue_running_job_ends_and_queued_job_waits(
    direct_dsn: str, db: Database
) -> None:
    # It polls once a minute. The test needs notifications, which do not pass a pooler.
    async with Rota(direct_dsn, poll_interval=60) as app:
        gate, ran = asyncio.Event(), list[str]()
        began = asyncio.Event()

        @app.task(queue="mail")
        async def send(name: str) -> str:
            ran.append(name)
            if name == "first":
                began.set()
                await gate.wait()
            return name

        @app.task(queue="rest")
        async def other() -> str:
            return "done"

        async with app.worker(concurrency=10):
            first = await send.start(name="first")
            await asyncio.wait_for(began.wait(), 60)

            assert await app.queues.pause("mail", "smtp is down") is True
            second = await send.start(name="second")
            gate.set()

            assert await first.result(timeout=60) == "first"
            assert await (await other.start()).result(timeout=60) == "done"
            assert await second.status() == "queued"
            assert ran == ["first"]
            assert await app.queues.resume("mail") is True
            assert await second.result(timeout=60) == "second"
    assert await fetch_count(db, "select count(*) from rota.claims") == 0


async def test_paused_queue_is_skipped_by_a_later_worker(rota_app: Rota, db: Database) -> None:
    @rota_app.task(queue="mail")
    async def send() -> None: ...

    @rota_app.task
    async def after() -> None: ...

    await rota_app.queues.pause("mail")
    ready = [await send.start() for _ in range(3)]
    suspect, grave = ready[:2]
    await db.execute("update rota.queued set suspicion = 'mild' where job = %s", (suspect.id,))
    await db.execute(
        "update rota.queued set crashes = 2, suspicion = 'grave' where job = %s", (grave.id,)
    )
    async with rota_app.worker():
        for _ in range(3):
            await (await after.start()).result(timeout=60)
        # By now the worker has claimed several times, including suspects.
        assert [await each.status() for each in ready] == ["queued"] * 3
        await rota_app.queues.resume("mail")
        for each in ready:
            await each.result(timeout=60)


async def test_paused_queue_retried_job_waits(rota_app: Rota) -> None:
    tries: list[int] = []

    @rota_app.task(queue="mail", retry=Retry(max_attempts=2, delay=0.2))
    async def send() -> int:
        tries.append(1)
        if len(tries) == 1:
            await rota_app.queues.pause("mail")
            raise ValueError
        return len(tries)

    async with rota_app.worker():
        run = await send.start()
        async with asyncio.timeout(60):
            while (await run.explain()).reasons[0].code != "paused":
                await asyncio.sleep(0.02)
        assert tries == [1]
        await rota_app.queues.resume("mail")
        assert await run.result(timeout=60) == 2


async def test_pause_repeated_changes_nothing_and_is_audited_once(
    rota_app: Rota, db: Database
) -> None:
    queues = rota_app.queues

    assert [await queues.pause("mail", "a deploy", by="ada") for _ in range(2)] == [True, False]
    [paused] = await queues.paused()
    assert (paused.queue, paused.operator, paused.reason) == ("mail", "ada", "a deploy")
    assert [await queues.resume("mail", by="ben") for _ in range(2)] == [True, False]
    assert await queues.paused() == []

    cursor = await db.execute(
        "select operator, action, subject, detail from rota.audit order by id"
    )
    assert await cursor.fetchall() == [
        ("ada", "pause queue", "mail", {"reason": "a deploy"}),
        ("ben", "resume queue", "mail", {}),
    ]


@pytest.mark.parametrize(
    ("queue", "why"), [("", ""), ("x" * 201, ""), ("a\0b", ""), ("a", "x" * 1001)]
)
async def test_pause_invalid_queue_or_reason_is_refused(
    rota_app: Rota, queue: str, why: str
) -> None:
    with pytest.raises(ArgumentError):
        await rota_app.queues.pause(queue, why)


@pytest.mark.parametrize("queue", ["", "x" * 201, "a\0b", "a\ud800b"])
async def test_resume_invalid_queue_is_refused(rota_app: Rota, queue: str) -> None:
    with pytest.raises(ArgumentError, match="queue has 1 to 200 letters"):
        await rota_app.queues.resume(queue)


async def test_desired_workers_of_paused_queue_is_zero(rota_app: Rota, db: Database) -> None:
    @rota_app.task(queue="mail")
    async def send() -> None: ...

    await rota_app.start_many([send.bind() for _ in range(50)])
    wanted = "select rota.desired_workers('mail')"
    assert await fetch_count(db, wanted) > 0

    await rota_app.queues.pause("mail")

    assert await fetch_count(db, wanted) == 0
    assert await fetch_count(db, "select backlog from rota.autoscale(only_queue => 'mail')") == 50


async def test_pause_api_viewer_does_not_see_the_reason(rota_dsn: str) -> None:
    api = "/api/v1/queues"
    async with make_site_app(rota_dsn) as app, SiteClient(app) as visitors:
        done = await visitors.done("POST", f"{api}/a/b c/pause", json={"reason": "planted"})
        again = await visitors.done("POST", f"{api}/a/b c/pause")
        shown = await visitors.ask("GET", api, who="operator")
        viewed = await visitors.ask("GET", api, who="viewer")
        metrics = await visitors.ask("GET", "/metrics", who="viewer")
        resumed = await visitors.done("POST", f"{api}/a/b c/resume")

    assert done == {"queue": "a/b c", "paused": True, "changed": True}
    assert again["changed"] is False
    assert [each["reason"] for each in shown.json()["paused"]] == ["planted"]
    [line] = viewed.json()["paused"]
    assert set(line) == {"queue", "since"}
    assert 'rota_queue_paused{queue="a/b c"} 1.0' in metrics.text
    assert resumed == {"queue": "a/b c", "paused": False, "changed": True}


def test_queues_command_pauses_and_resumes(
    direct_dsn: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", direct_dsn)
    with psycopg.connect(direct_dsn, autocommit=True) as connection:
        row = connection.execute("select run from rota.start('send', queue => 'mail')").fetchone()
    assert row is not None

    assert main.run(["queues", "pause", "mail", "--reason", "smtp is down"]) == OK
    assert capfd.readouterr().out == "queue 'mail' is paused\n"
    assert main.run(["queues", "pause", "mail"]) == OK
    assert "was paused already" in capfd.readouterr().err

    assert main.run(["queues"]) == OK
    said = capfd.readouterr().out
    assert "queue 'mail' has been paused for" in said
    assert "smtp is down; resume it with `rota queues resume mail`" in said
    assert "no worker serves" not in said
    assert main.run(["queues", "--json"]) == OK
    [paused] = json.loads(capfd.readouterr().out)["paused"]
    assert (paused["queue"], paused["reason"]) == ("mail", "smtp is down")

    assert main.run(["explain", str(row[0])]) == FAILED
    said = capfd.readouterr().out
    assert "it is queued, and queue 'mail' is paused" in said
    assert "remedy  `rota queues resume mail`" in said
    main.run(["doctor"])
    assert "notice   paused" in capfd.readouterr().out

    assert main.run(["queues", "resume", "mail"]) == OK
    assert main.run(["queues", "resume", "mail"]) == NOT_FOUND
    assert main.run(["queues", "--json"]) == OK
    assert json.loads(capfd.readouterr().out.split("goes on\n")[-1])["paused"] == []
