"""Prometheus metrics: all documented, with bounded labels and a bounded cost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import AsyncConnection

from rota import Context, Retry, Rota
from rota.store.database import Database
from rota.testing.harness import Harness
from rota.web import fleet_metrics
from rota.web.metric_definitions import FLEET_METRICS, METRIC_FAMILIES
from rota.web.site import site
from rota.web.tokens_auth import LocalAccess
from support.places import DOCS

LABELS = {
    "queue",
    "task",
    "outcome",
    "kind",
    "state",
    "result",
    "leader",
    "rota_version",
    "version",
}


class Scrape:
    """Metrics of one answer, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {
            f"{each.name}_total" if each.type == "counter" else each.name: each
            for each in text_string_to_metric_families(text)
        }

    def __call__(self, name: str, **labels: str) -> float:
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} {labels}"
        return sum(found)


def metrics_client(app: Rota) -> httpx2.AsyncClient:
    local = LocalAccess()
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(site(app, auth=local, parts=("health",))),
        base_url="http://127.0.0.1",
        headers={"Authorization": f"Bearer {local.key}"},
    )


@pytest.fixture
async def client(rota_app: Rota) -> AsyncIterator[httpx2.AsyncClient]:
    async with metrics_client(rota_app) as client:
        yield client


@pytest.fixture
def uncached_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query the figures for every scrape instead of caching them."""
    monkeypatch.setattr(fleet_metrics, "CACHE_SECONDS", 0.0)


async def scrape(client: httpx2.AsyncClient) -> Scrape:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return Scrape(answer.text)


async def test_metrics_scrape_contains_every_family_as_declared(
    rota_app: Rota, client: httpx2.AsyncClient, db: AsyncConnection[Any], uncached_metrics: None
) -> None:
    @rota_app.task
    async def work() -> None: ...

    await db.execute(
        "insert into rota.alerts (kind, subject, message, host, pid) values ('k', 's', 'm', 'h', 1)"
    )
    await rota_app.queues.pause("elsewhere")
    async with rota_app.leader("housekeeping").term(), rota_app.worker():
        await (await work.start()).result(timeout=60)
        told = await scrape(client)

    assert set(told.families) == set(METRIC_FAMILIES)
    for name, family in METRIC_FAMILIES.items():
        assert told.families[name].type == family.kind, name
        assert told.families[name].samples, name
        for sample in told.families[name].samples:
            assert set(sample.labels) - {"le"} == set(family.labels), name


def test_metric_families_have_only_bounded_labels() -> None:
    assert {label for family in METRIC_FAMILIES.values() for label in family.labels} <= LABELS
    assert all(re.fullmatch(r"rota_[a-z_]+", name) for name in METRIC_FAMILIES)
    for name, family in METRIC_FAMILIES.items():
        assert (family.kind == "counter") == name.endswith("_total"), name
        assert family.help.endswith("."), name


def test_metrics_reference_lists_every_family() -> None:
    """Each has a row with its kind and labels, and no row is without a metric."""
    rows = re.findall(r"^\| `(rota_\w+)` \| (\w+) \| ([^|]*) \| (.+) \|$", text(), re.MULTILINE)
    told = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}

    assert told == {name: (each.kind, each.labels) for name, each in METRIC_FAMILIES.items()}
    assert len(rows) == len(told)


def text() -> str:
    return (DOCS / "reference" / "metrics.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["metrics", "health"])
def test_metrics_guides_mention_only_existing_families(page: str) -> None:
    told = (DOCS / "guides" / f"{page}.md").read_text("utf-8")
    for name in re.findall(r"\brota_[a-z_]+", told):
        assert (
            name in METRIC_FAMILIES or re.sub(r"_(bucket|sum|count)$", "", name) in METRIC_FAMILIES
        ), name


async def test_metrics_jobs_are_counted_by_outcome(
    rota_app: Rota, rota_harness: Harness, client: httpx2.AsyncClient, uncached_metrics: None
) -> None:
    @rota_app.task(queue="images", retry=Retry(max_attempts=2, delay=0.01))
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("not yet")

    @rota_app.task(retry=Retry(max_attempts=1))
    async def broken() -> None:
        raise ValueError("never")

    @rota_app.task
    async def quick() -> None: ...

    @rota_app.task
    async def keyed() -> None: ...

    async with rota_app.worker():
        runs = [await flaky.start(), await broken.start()]
        runs += await rota_app.start_many([quick.bind() for _ in range(40)])
        for _ in range(2):
            runs += await rota_app.start_many([keyed.options(key="once").bind()])
        await asyncio.gather(*(run.result(timeout=60) for run in runs), return_exceptions=True)
        told = await scrape(client)
    after = await scrape(client)

    ends = "rota_jobs_finished_total"
    assert told(ends, queue="images", task="flaky", outcome="succeeded") == 1
    assert told(ends, task="broken", outcome="failed") == 1
    assert told(ends, task="quick", outcome="succeeded") == 40
    assert told("rota_jobs_retried_total", task="flaky") == 1
    assert told("rota_jobs_started_total", task="flaky") == 2
    assert told("rota_jobs_claimed_total", task="flaky") == 2
    assert told("rota_jobs_arrived_total", queue="default", task="quick") == 40
    assert told("rota_jobs_arrived_total", task="keyed") == 1, "the second was there already"
    assert told("rota_job_duration_seconds_count", task="flaky") == 2
    assert told("rota_job_wait_seconds_count", task="quick") == 40
    # Its second attempt was not queued from the start.
    assert told("rota_job_wait_seconds_count", task="flaky") == 1
    assert told("rota_claim_batch_size_sum") == told("rota_jobs_claimed_total")
    assert told("rota_worker_concurrency") == 100
    # The worker has stopped, and its counts remain.
    assert after(ends, task="quick", outcome="succeeded") == 40
    assert after("rota_worker_concurrency") == 0


async def test_metrics_locks_and_leaders_are_counted(
    rota_app: Rota, client: httpx2.AsyncClient, uncached_metrics: None
) -> None:
    async with rota_app.lock("one", ttl=5):
        assert await rota_app.try_lock("one", ttl=5) is None
        waiting = asyncio.create_task(rota_app.lock("one", ttl=5, wait=5).acquire())
        # Until the waiter's flag is set.
        while not await is_lock_awaited(rota_app):
            await asyncio.sleep(0.01)
    lock = await waiting
    await lock.release()
    async with rota_app.leader("a").term():
        told = await scrape(client)

    assert told("rota_locks_acquired_total") == 2
    assert told("rota_lock_waits_total") == 1
    assert told("rota_lock_wait_seconds_sum") > 0
    assert told("rota_leader_elections_total") == 1
    assert told("rota_leader_term", leader="a") == 1
    assert told("rota_locks_lost_total") == 0


async def is_lock_awaited(app: Rota) -> bool:
    from rota.store.read import coordination

    found = await (await app.open()).database.run(coordination.locks("one"))
    return any(each.awaited_since for each in found)


async def test_metrics_pool_connections_are_reported_by_state(rota_dsn: str) -> None:
    async with Rota(rota_dsn, connections=1) as app:
        database = (await app.open()).database
        async with metrics_client(app) as client:
            await scrape(client)
            async with database.connection():
                held = (await scrape(client))("rota_pool_connections", state="busy")
            told = await scrape(client)

    assert held == 1
    assert told("rota_pool_connections", state="busy") == 0
    assert (told("rota_pool_connections", state="idle"), told("rota_pool_limit")) == (1, 1)


async def test_metrics_registry_of_the_process_is_unchanged(
    rota_app: Rota, client: httpx2.AsyncClient
) -> None:
    before = prometheus_client.generate_latest()
    await scrape(client)

    assert b"rota_" not in prometheus_client.generate_latest()
    assert b"rota_" not in before


async def test_metrics_openmetrics_accept_header_returns_openmetrics(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get(
        "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
    )

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_metrics_concurrent_scrapes_share_one_query(
    rota_app: Rota, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    exchange = Database.pipeline

    async def counting(self: Database, segments: Any, patience: float = 0.0) -> Any:
        looked.extend(query.statement for segment in segments for query in segment)
        return await exchange(self, segments, patience)

    monkeypatch.setattr(Database, "pipeline", counting)
    await asyncio.gather(*(scrape(client) for _ in range(20)))
    await scrape(client)

    assert looked.count("metric/fleet_totals") == 1
    assert looked.count("metric/desired_workers") == 1


async def test_metrics_without_database_keep_last_figures_with_their_age(
    rota_app: Rota,
    client: httpx2.AsyncClient,
    uncached_metrics: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await scrape(client))("rota_database_up") == 1
    monkeypatch.setattr(Database, "pipeline", always_raise(OSError("gone")))
    one = await scrape(client)
    await asyncio.sleep(0.05)
    two = await scrape(client)

    assert one("rota_database_up") == two("rota_database_up") == 0
    assert two("rota_fleet_metrics_age_seconds") > one("rota_fleet_metrics_age_seconds") > 0
    assert set(FLEET_METRICS) - set(two.families) == set()


def always_raise(error: Exception) -> Callable[..., Any]:
    async def failing(*_: Any, **__: Any) -> Any:
        raise error

    return failing


async def test_metrics_jobs_of_dead_worker_are_counted_as_reaped(
    rota_app: Rota, client: httpx2.AsyncClient, db: AsyncConnection[Any]
) -> None:
    @rota_app.task
    async def work() -> None: ...

    run = await work.start()
    await db.execute(
        "with gone as (delete from rota.queued returning job, seq), dead as (insert into rota.workers"
        " (host, pid, version, queues, tasks, capacity, state, ended) values ('far', 7, '',"
        " '{default}', '{work}', 1, 'dead', rota.clock()) returning id) insert into rota.claims"
        " (worker, nonce, jobs, attempts, crashes, seqs) select dead.id, gen_random_uuid(),"
        " array[gone.job], array[1], array[0], array[gone.seq] from gone, dead"
    )
    async with rota_app.worker():
        await run.result(timeout=60)
        told = await scrape(client)

    assert told("rota_jobs_reaped_total") == 1
    assert told("rota_jobs_started_total", task="work") == 1
