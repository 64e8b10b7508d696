"""Desired workers: for known loads, and properties that hold for any load."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import Rota
from rota.store import metrics
from rota.store.metrics import DesiredWorkersRow, MinuteTotals
from rota.testing.server import DatabaseServer
from rota.web.site import site
from rota.web.tokens_auth import LocalAccess

Direct = psycopg.Connection[tuple[Any, ...]]

WORKER = """
insert into rota.workers (host, pid, version, queues, tasks, capacity, running)
values ('one', 1, '', %s, '{work}', %s, %s) returning id
"""
JOBS = """
with given as (
    insert into rota.jobs (id, priority, task, queue, args)
    select nextval('rota.ids'), 0, 'work', %s, '{}' from generate_series(1, %s)
    returning id, queue)
insert into rota.queued (seq, job, priority, queue, task)
select given.id, given.id, 0, given.queue, 'work' from given
"""
FORMULA = "select rota.workers_needed(%s, %s, %s, %s, %s, %s, %s, %s)"


@pytest.fixture(scope="module")
def formula(rota_server: DatabaseServer) -> Iterator[Direct]:
    with rota_server.database() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


def workers_needed(connection: Direct, *load: float | None) -> int:
    row = connection.execute(FORMULA, load).fetchone()
    assert row is not None
    number: int = row[0]
    return number


rates = st.floats(0, 1e5)
backlogs = st.integers(0, 10_000_000)
service_times = st.one_of(st.none(), st.floats(0, 1e5))
targets = st.floats(0.1, 1e5)
places = st.integers(1, 1000)
several = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@several
@given(rates, service_times, backlogs, st.integers(1, 1_000_000), rates, targets, places)
def test_desired_workers_more_backlog_never_needs_fewer(
    formula: Direct,
    arrivals: float,
    service: float | None,
    backlog: int,
    more: int,
    running: float,
    target: float,
    concurrency: int,
) -> None:
    rest = (running, target, concurrency, 0, 1000)
    less = workers_needed(formula, arrivals, service, backlog, *rest)

    assert workers_needed(formula, arrivals, service, backlog + more, *rest) >= less


@several
@given(rates, st.floats(0, 1e5), backlogs, rates, targets, places, st.integers(0, 50))
def test_desired_workers_any_load_is_bounded_and_sufficient(
    formula: Direct,
    arrivals: float,
    service: float,
    backlog: int,
    running: float,
    target: float,
    concurrency: int,
    fewest: int,
) -> None:
    most = fewest + 200
    wanted = workers_needed(
        formula, arrivals, service, backlog, running, target, concurrency, fewest, most
    )

    assert fewest <= wanted <= most
    # The formula as documented.
    slots = max(arrivals * service, running) + backlog * min(1.0, service / target)
    exactly = max(slots / concurrency, 1.0 if backlog or running else 0.0, fewest)
    assert min(exactly, most) - 1e-6 * exactly - 1e-6 <= wanted
    assert wanted <= max(math.ceil(exactly * (1 + 1e-9)), fewest)


@pytest.mark.parametrize("fewest", [0, 2])
def test_desired_workers_no_load_is_the_minimum(formula: Direct, fewest: int) -> None:
    assert workers_needed(formula, 0, 0.5, 0, 0, 60, 100, fewest, 10) == fewest
    assert workers_needed(formula, 0, None, 0, 0, 60, 100, fewest, 10) == fewest


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param((100, 0.5, 0, 0, 60, 10), 5, id="arrivals keep 50 places busy"),
        pytest.param((0, 0.6, 6000, 0, 60, 10), 6, id="a backlog in its time"),
        pytest.param((100, 0.5, 6000, 0, 60, 10), 10, id="both"),
        pytest.param((0, 3600, 10, 0, 60, 10), 1, id="a job takes one place, however long"),
        pytest.param((0, 3600, 0, 25, 60, 10), 3, id="what runs goes on"),
        pytest.param((0, None, 500, 0, 60, 10), 1, id="the first one tells"),
        pytest.param((0, 0.000001, 1, 0, 60, 100), 1, id="a single job wants somebody"),
    ],
)
def test_desired_workers_known_load_gives_known_number(
    formula: Direct, load: tuple[float | None, ...], expected: int
) -> None:
    assert workers_needed(formula, *load, 0, 100) == expected


# From the database


class Load:
    """Database into which a load can be inserted."""

    def __init__(self, app: Rota, direct: Direct) -> None:
        self.app = app
        self.direct = direct

    async def counted(self, ago: int = 1, **counts: float) -> None:
        """Insert a worker's counts of the minute that was `ago` minutes ago."""
        database = (await self.app.open()).database
        row = self.direct.execute("select extract(epoch from rota.clock())::bigint / 60").fetchone()
        assert row is not None
        zero = dict.fromkeys(MinuteTotals.__struct_fields__, 0)
        where = {"minute": row[0] - ago, "queue": "default", "task": "work"}
        told: Any = zero | counts | where
        await database.run(metrics.write_minutes(7, [MinuteTotals(**told)]))

    async def wants(self, queue: str = "default", **how: Any) -> DesiredWorkersRow:
        given = {"target": 60.0, "min_workers": 0, "max_workers": 100, "queue": queue, **how}
        [found] = await (await self.app.open()).database.run(metrics.desired_workers(**given))
        return found


@pytest.fixture
def load(rota_app: Rota, direct_dsn: str) -> Iterator[Load]:
    with psycopg.connect(direct_dsn, autocommit=True) as direct:
        yield Load(rota_app, direct)


async def test_desired_workers_idle_fleet_is_the_minimum(load: Load) -> None:
    load.direct.execute(WORKER, (["default"], 10, 0))

    assert (await load.wants()).desired == 0
    assert (await load.wants(min_workers=2)).desired == 2
    assert (await load.wants()).workers == 1


async def test_arrival_rate_counts_claims_and_backlog_growth(load: Load) -> None:
    load.direct.execute(WORKER, (["default"], 10, 0))
    await load.counted(ago=2, claimed=3000, attempts=3000, seconds=1500.0)
    load.direct.execute(
        "insert into rota.queue_samples select date_trunc('minute', rota.clock()) - interval '5 min',"
        " 'default', 100, 0, 1"
    )
    load.direct.execute(JOBS, ("default", 700))

    found = await load.wants()
    # 3,000 claimed and 600 more queued than before, in five minutes and the current part of a minute.
    assert 3600 / 360 <= found.arrival_rate <= 3600 / 300
    assert found.mean_seconds == pytest.approx(0.5)
    assert (found.backlog, found.slots) == (700, 10.0)
    by_hand = (found.arrival_rate * 0.5 + 700 * 0.5 / 60) / 10
    assert found.desired == math.ceil(by_hand)


async def test_arrival_rate_returned_jobs_are_not_counted(load: Load) -> None:
    await load.counted(claimed=500, returned=450, attempts=50, seconds=50.0)

    assert (await load.wants()).arrival_rate == pytest.approx(50 / 330, rel=0.1)


async def test_desired_workers_without_recent_jobs_uses_older_durations(load: Load) -> None:
    await load.counted(ago=25, claimed=10, attempts=10, seconds=20.0)
    load.direct.execute(JOBS, ("default", 300))
    found = await load.wants(concurrency=1)

    assert found.mean_seconds == pytest.approx(2.0)
    assert found.desired >= 300 * 2 / 60


async def test_desired_workers_long_running_jobs_keep_their_workers(load: Load) -> None:
    """Jobs that take an hour end rarely, so the counts of ended jobs do not show them."""
    row = load.direct.execute(WORKER, (["default", "other"], 10, 8)).fetchone()
    assert row is not None
    load.direct.execute(JOBS, ("default", 16))
    load.direct.execute(
        "with gone as (delete from rota.queued returning job) insert into rota.claims"
        " (worker, nonce, jobs, attempts, crashes, seqs) select %s, gen_random_uuid(), array_agg(job),"
        " array_agg(1::smallint), array_agg(0::smallint), array_agg(job) from gone",
        row,
    )
    found = await load.wants(concurrency=3)

    # Sixteen jobs are held and eight of them run: the rest are prefetched.
    assert (found.running, found.desired) == (8.0, 3)
    assert (await load.wants("other")).running == 0


async def test_desired_workers_sql_function_equals_the_query(load: Load) -> None:
    await load.counted(claimed=100, attempts=100, seconds=100.0)
    load.direct.execute(JOBS, ("default", 600))
    found = await load.wants(concurrency=2)
    for text, expected in (
        ("select rota.desired_workers('default', concurrency => 2)", found.desired),
        ("select rota.desired_workers('default', max_workers => 3, concurrency => 2)", 3),
        ("select rota.desired_workers('nowhere')", 0),
        ("select rota.desired_workers('nowhere', min_workers => 1)", 1),
    ):
        row = load.direct.execute(text.encode()).fetchone()
        assert row is not None
        assert row[0] == expected, text


async def test_autoscale_endpoint_reports_desired_workers_by_queue(load: Load) -> None:
    load.direct.execute(JOBS, ("default", 600))
    load.direct.execute(JOBS, ("other", 1))
    local = LocalAccess()
    transport = httpx2.ASGITransport(site(load.app, auth=local, parts=("health",)))
    async with httpx2.AsyncClient(
        transport=transport,
        base_url="http://127.0.0.1",
        headers={"Authorization": f"Bearer {local.key}"},
    ) as client:
        told = (await client.get("/autoscale")).json()
        assert told["desired"] == {"default": 1, "other": 1}
        assert {each["queue"]: each["backlog"] for each in told["queues"]} == {
            "default": 600,
            "other": 1,
        }
        one = (await client.get("/autoscale", params={"queue": "other", "min": 4})).json()
        assert one["desired"] == {"other": 4}
        for wrong in ({"target": "0"}, {"min": "x"}, {"max": "1.5"}, {"target": "nan"}):
            answer = await client.get("/autoscale", params=wrong)
            assert answer.status_code == 422, wrong
            assert next(iter(wrong)) in answer.json()["error"]["message"]
