"""One example request for each operation of the HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any
from uuid import uuid4

from rota.store import workers
from support.site_client import SiteClient

Example = tuple[str, dict[str, Any]]
Prepare = Callable[[SiteClient], Awaitable[Example]]
EXAMPLES: dict[tuple[str, str], Prepare] = {}
NUMBERS = count(1)
V1 = "/api/v1"

NO_EFFECT = {
    *("cancel_runs", "retry_runs", "release_runs", "prune_runs"),
    *("release_run", "resume_queue", "resume_schedule"),
}
"""Operations whose example changes nothing: nothing matches, or the state is already the requested one."""


def example(method: str, path: str) -> Callable[[Prepare], Prepare]:
    def note(prepare: Prepare) -> Prepare:
        EXAMPLES[method, path] = prepare
        return prepare

    return note


def add_plain_example(method: str, path: str, **more: Any) -> None:
    async def prepare(visitors: SiteClient) -> Example:
        return path, more

    EXAMPLES[method, path] = prepare


for each in (
    *(
        "/runs",
        "/runs/count",
        "/schedules",
        "/workers",
        "/queues",
        "/autoscale",
        "/overview",
        "/doctor",
        "/quarantine",
        "/locks",
        "/advisory-locks",
        "/leaders",
        "/services",
        "/once-calls",
        "/rate-limits",
    ),
    *("/alerts", "/me", "/catalog", "/tokens", "/audit", "/openapi.json"),
):
    add_plain_example("GET", V1 + each)
for each in ("/health/instances", "/metrics", "/autoscale"):
    add_plain_example("GET", each)
for each in ("/health/live", "/livez", "/healthz", "/health/ready", "/readyz"):
    add_plain_example("GET", each)
add_plain_example("POST", f"{V1}/runs/prune", json={"retention": "9999d"})
add_plain_example("POST", f"{V1}/quarantine/release", json={"queue": "no such queue"})
add_plain_example("POST", f"{V1}/runs", json={"name": "greet", "input": {"name": "Ada"}})


for each in ("cancel", "retry"):
    add_plain_example("POST", f"{V1}/runs/{each}", json={"upto": "1", "queue": "no such queue"})


@example("GET", f"{V1}/runs/{{run}}")
async def show_run(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('greet', input={'name': 'Ada'})}", {}


@example("GET", f"{V1}/runs/{{run}}/explain")
async def explain_run(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('greet', input={'name': 'Ada'})}/explain", {}


@example("GET", f"{V1}/runs/{{run}}/jobs")
async def list_jobs(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('etl', input={'day': 'monday'})}/jobs", {}


@example("POST", f"{V1}/runs/{{run}}/cancel")
async def cancel(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('greet', input={'name': 'Ada'})}/cancel", {}


@example("POST", f"{V1}/runs/{{run}}/retry")
async def retry(visitors: SiteClient) -> Example:
    run = await visitors.start("greet", input={"name": "Ada"})
    await visitors.app.run(int(run)).cancel()
    return f"{V1}/runs/{run}/retry", {}


@example("POST", f"{V1}/runs/{{run}}/signals")
async def signal(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('approve')}/signals", {"json": {"name": "answer"}}


@example("POST", f"{V1}/runs/{{run}}/release")
async def release(visitors: SiteClient) -> Example:
    return f"{V1}/runs/{await visitors.start('approve')}/release", {}


@example("POST", f"{V1}/runs/{{run}}/fork")
async def fork(visitors: SiteClient) -> Example:
    run = await visitors.start("etl", input={"day": "monday"})
    return f"{V1}/runs/{run}/fork", {"json": {"task": "extract"}}


def new_schedule() -> dict[str, Any]:
    name = f"schedule {next(NUMBERS)} of {uuid4()}"
    return {"name": name, "task": "greet", "cron": "0 7 * * *", "input": {"name": "Ada"}}


@example("POST", f"{V1}/schedules")
async def create_schedule(visitors: SiteClient) -> Example:
    return f"{V1}/schedules", {"json": new_schedule()}


async def schedule(visitors: SiteClient) -> str:
    made = await visitors.done("POST", f"{V1}/schedules", json=new_schedule())
    return f"{V1}/schedules/{made['name']}"


@example("GET", f"{V1}/schedules/{{name:path}}")
@example("DELETE", f"{V1}/schedules/{{name:path}}")
async def one_schedule(visitors: SiteClient) -> Example:
    return await schedule(visitors), {}


@example("PATCH", f"{V1}/schedules/{{name:path}}")
async def update_schedule(visitors: SiteClient) -> Example:
    return await schedule(visitors), {"json": {"cron": "0 8 * * *"}}


def add_schedule_example(word: str) -> None:
    async def prepare(visitors: SiteClient) -> Example:
        return f"{await schedule(visitors)}/{word}", {}

    EXAMPLES["POST", f"{V1}/schedules/{{name:path}}/{word}"] = prepare


for each in ("pause", "resume", "trigger"):
    add_schedule_example(each)


@example("POST", f"{V1}/schedules/{{name:path}}/backfill")
async def backfill_schedule(visitors: SiteClient) -> Example:
    return f"{await schedule(visitors)}/backfill", {"json": {"start": "2026-01-01"}}


def add_queue_example(word: str, **more: Any) -> None:
    async def prepare(visitors: SiteClient) -> Example:
        return f"{V1}/queues/queue/{uuid4()}/{word}", more

    EXAMPLES["POST", f"{V1}/queues/{{queue:path}}/{word}"] = prepare


add_queue_example("pause", json={"reason": "a deploy"})
add_queue_example("resume")


async def register_worker(visitors: SiteClient) -> int:
    database = (await visitors.app.open()).database
    [worker] = await database.run(workers.register("host", 1, "0", ["default"], ["work"], 10))
    return worker


@example("GET", f"{V1}/workers/{{worker}}")
async def show_worker(visitors: SiteClient) -> Example:
    return f"{V1}/workers/{await register_worker(visitors)}", {}


@example("POST", f"{V1}/workers/{{worker}}/drain")
async def drain(visitors: SiteClient) -> Example:
    return f"{V1}/workers/{await register_worker(visitors)}/drain", {}


@example("POST", "/admin/drain")
async def admin_drain(visitors: SiteClient) -> Example:
    return "/admin/drain", {"json": {"worker": await register_worker(visitors)}}


@example("POST", f"{V1}/locks/{{name:path}}/release")
async def release_lock(visitors: SiteClient) -> Example:
    name = f"lock/{uuid4()}"
    await visitors.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " values (%s, 0, 17, gen_random_uuid(), 'web-1', 4242, now(), now() + interval '1 h')",
        name,
    )
    return f"{V1}/locks/{name}/release", {}


@example("GET", f"{V1}/services/{{name:path}}")
async def show_service(visitors: SiteClient) -> Example:
    name = f"service/{uuid4()}"
    await visitors.sql("insert into rota.services (name, every) values (%s, 60)", name)
    return f"{V1}/services/{name}", {}


def add_alert_example(word: str) -> None:
    async def prepare(visitors: SiteClient) -> Example:
        kind = f"kind {uuid4()}"
        await visitors.sql(
            "insert into rota.alerts (kind, subject, message, host, pid)"
            " values (%s, 'this', 'it is so', 'web-1', 4242)",
            kind,
        )
        return f"{V1}/alerts/{word}", {"json": {"kind": kind}}

    EXAMPLES["POST", f"{V1}/alerts/{word}"] = prepare


for each in ("acknowledge", "dismiss"):
    add_alert_example(each)


@example("POST", f"{V1}/tokens")
async def create_token(visitors: SiteClient) -> Example:
    return f"{V1}/tokens", {"json": {"name": "ci", "role": "viewer", "days": 1}}


@example("DELETE", f"{V1}/tokens/{{id}}")
async def revoke_token(visitors: SiteClient) -> Example:
    made = await visitors.done("POST", f"{V1}/tokens", json={"name": "ci"})
    return f"{V1}/tokens/{made['id']}", {}
