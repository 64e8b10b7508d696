"""Health endpoints for load balancers, monitoring and operators, and the roles they require."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from psycopg import AsyncConnection
from starlette.applications import Starlette
from starlette.routing import Mount

from rota import Rota
from rota.app.tokens import create_access_token
from rota.app.worker_entry import run_worker
from rota.model.access import Role
from rota.model.service import ServiceContext
from rota.web.health import health
from rota.web.site import site
from rota.web.tokens_auth import LocalAccess

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing?connect_timeout=1"


@asynccontextmanager
async def health_client(
    app: Rota, auth: Any = None, **headers: str
) -> AsyncIterator[httpx2.AsyncClient]:
    if auth is None:
        auth = LocalAccess()
        headers = {"Authorization": f"Bearer {auth.key}", **headers}
    transport = httpx2.ASGITransport(site(app, auth=auth, parts=("health",)))
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers=headers
    ) as client:
        yield client


@asynccontextmanager
async def client_with_role(app: Rota, role: Role) -> AsyncIterator[httpx2.AsyncClient]:
    token, _ = await create_access_token(app, role.text, role, timedelta(hours=1), "test")
    async with health_client(app, "tokens", Authorization=f"Bearer {token.text}") as client:
        yield client


@pytest.mark.parametrize("path", ["/health/live", "/livez", "/healthz"])
async def test_live_without_database_answers_200(path: str) -> None:
    async with Rota(NOWHERE) as app, health_client(app, "tokens") as client:
        answer = await client.get(path)

        assert answer.status_code == 200
        assert answer.json() == {"status": "live", "lag": None}
        # No connection was attempted.
        assert app.database.current_client() is None


@pytest.mark.parametrize("path", ["/health/ready", "/readyz"])
async def test_ready_without_database_answers_503_with_reason(path: str) -> None:
    async with Rota(NOWHERE) as app, health_client(app, "tokens") as client:
        answer = await client.get(path)

        assert answer.status_code == 503
        [reason] = answer.json()["reasons"]
        assert reason["code"] == "database"
        assert "unreachable for" in reason["message"]
        assert "Retry-After" in answer.headers


async def test_ready_follows_the_state_of_the_instance(rota_app: Rota) -> None:
    async with health_client(rota_app, "tokens") as client:
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["status"]) == (200, "ready")

        rota_app.readiness.is_starting = True
        assert (await client.get("/health/ready")).json()["reasons"][0]["code"] == "starting"
        rota_app.readiness.is_starting = False
        rota_app.readiness.drain()
        answer = await client.get("/health/ready")
        assert (answer.status_code, answer.json()["reasons"][0]["code"]) == (503, "draining")
        assert (await client.get("/health/live")).status_code == 200


async def test_live_with_worker_reports_loop_lag(rota_app: Rota) -> None:
    @rota_app.task
    async def work() -> None: ...

    async with rota_app.worker(), health_client(rota_app) as client:
        assert (await client.get("/health/live")).json()["lag"] >= 0


async def test_instances_endpoint_lists_active_and_silent_workers(
    rota_app: Rota, rota_dsn: str, db: AsyncConnection[Any]
) -> None:
    ran, seen = asyncio.Event(), asyncio.Event()

    @rota_app.task(queue="images")
    async def work() -> None:
        await seen.wait()

    @rota_app.service("watch", every=60)
    async def watch(ctx: ServiceContext) -> None:
        ran.set()

    await db.execute(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, last_beat, running)"
        " values ('far', 7, 'v2', '{default}', '{work}', 10, rota.clock() - interval '2 min', 5)"
    )
    async with rota_app.worker(concurrency=4) as worker, rota_app.leader("boss").term():
        await work.start()
        await asyncio.wait_for(ran.wait(), 60)
        async with health_client(rota_app) as client:
            while True:
                worker.session.heartbeat.beat_now()  # the heartbeat records the running jobs
                told = (await client.get("/health/instances")).json()
                by_host = {each["host"]: each for each in told["instances"]}
                here = by_host[socket.gethostname()]
                if here["running"] and here["services"]:
                    break
                await asyncio.sleep(0.05)
        seen.set()

    assert (here["pid"], here["is_self"], here["state"]) == (os.getpid(), True, "active")
    assert (here["worker"], here["running"], here["capacity"]) == (worker.id, 1, 4)
    assert (here["load"], here["queues"], here["services"]) == (0.25, ["images"], ["watch"])
    assert set(here["leads"]) == {"boss", "service watch"}
    far = by_host["far"]
    assert (far["state"], far["is_self"], far["version"], far["load"]) == (
        "silent",
        False,
        "v2",
        0.5,
    )
    silence = "select extract(epoch from rota.clock() - min(last_beat))::float8 from rota.workers"
    [(silent_now,)] = await (await db.execute(silence)).fetchall()
    assert 120 <= told["max_silent_seconds"] <= silent_now


# Roles


async def test_health_only_live_and_ready_are_public(rota_app: Rota) -> None:
    async with health_client(rota_app, "tokens") as client:
        for path in ("/health/live", "/health/ready", "/livez", "/readyz", "/healthz"):
            assert (await client.get(path)).status_code == 200, path
        for path in ("/health/instances", "/metrics", "/autoscale"):
            assert (await client.get(path)).status_code == 401, path
        assert (await client.post("/admin/drain", json={})).status_code == 401
    async with client_with_role(rota_app, Role.VIEWER) as client:
        for path in ("/health/instances", "/metrics", "/autoscale"):
            assert (await client.get(path)).status_code == 200, path
        assert (await client.post("/admin/drain", json={})).status_code == 403
    assert not rota_app.readiness.is_draining


async def test_admin_drain_worker_drains_only_this_worker_and_is_audited(
    rota_app: Rota, db: AsyncConnection[Any]
) -> None:
    @rota_app.task
    async def work() -> None: ...

    left = asyncio.Event()
    running = run_worker(rota_app, on_drain_request=left.set)
    async with running as worker, client_with_role(rota_app, Role.OPERATOR) as client:
        answer = await client.post("/admin/drain", json={"worker": worker.id})
        assert (answer.status_code, answer.json()["worker"]) == (202, worker.id)
        await asyncio.wait_for(left.wait(), 60)
        # Only this worker drains, not the instance.
        assert not rota_app.readiness.is_draining

    rows = await (await db.execute("select operator, action, subject from rota.audit")).fetchall()
    who = rows[-1][0]
    assert who.startswith("operator (token ")
    assert [row for row in rows if row[1].startswith("drain")] == [
        (who, "drain worker", str(worker.id))
    ]


async def test_admin_drain_without_worker_id_drains_the_answering_instance(
    rota_app: Rota, db: AsyncConnection[Any]
) -> None:
    @rota_app.task
    async def work() -> None: ...

    left = asyncio.Event()
    running = run_worker(rota_app, on_drain_request=left.set)
    async with running as worker, client_with_role(rota_app, Role.OPERATOR) as client:
        answer = await client.post("/admin/drain")
        assert (answer.status_code, answer.json()["worker"]) == (202, worker.id)
        await asyncio.wait_for(left.wait(), 60)
        assert (await client.get("/health/ready")).status_code == 503


async def test_admin_drain_instance_without_worker_is_drained(
    rota_app: Rota, db: AsyncConnection[Any]
) -> None:
    async with client_with_role(rota_app, Role.OPERATOR) as client:
        answer = await client.post("/admin/drain", json={})
        assert (answer.status_code, answer.json()["worker"]) == (202, None)
        assert rota_app.readiness.is_draining

    rows = await (await db.execute("select action, subject from rota.audit")).fetchall()
    assert ("drain instance", f"{socket.gethostname()}:{os.getpid()}") in rows


async def test_admin_drain_invalid_body_is_refused_with_message(
    rota_app: Rota, db: AsyncConnection[Any]
) -> None:
    async with health_client(rota_app) as client:
        for body, status in (
            (b'{"worker": "x"}', 422),
            (b'{"wroker": 1}', 422),
            (b"[", 422),
            (b'{"worker": 99}', 404),
            (b'{"worker": 1' + b" " * 20_000 + b"}", 413),
        ):
            answer = await client.post(
                "/admin/drain", content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == status, body[:40]
            assert answer.json()["error"]["message"]
    assert not rota_app.readiness.is_draining
    rows = await (await db.execute("select count(*) from rota.audit")).fetchone()
    assert rows == (0,)


async def test_health_without_database_answers_503_without_its_address() -> None:
    async with Rota(NOWHERE, outage_timeout=0.1) as app, health_client(app) as client:
        for path in ("/health/instances", "/autoscale"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database"), path
            # Host, port, user and database name are not shown to a viewer.
            for word in ("127.0.0.1", "nobody", "port", "nothing"):
                assert word not in answer.text, path


@pytest.mark.parametrize("queue", ["%00", "a%00b"])
async def test_autoscale_queue_name_with_nul_is_refused(rota_app: Rota, queue: str) -> None:
    async with health_client(rota_app) as client:
        answer = await client.get(f"/autoscale?queue={queue}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


async def test_health_mounted_in_application_requires_roles(rota_app: Rota) -> None:
    outer = Starlette(routes=[Mount("/rota", health(rota_app))])
    transport = httpx2.ASGITransport(outer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        assert (await client.get("/rota/health/live")).status_code == 200
        assert (await client.get("/rota/metrics")).status_code == 401
