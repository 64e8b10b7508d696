"""Pages of a database with a million finished and a hundred thousand queued runs answer quickly and read
few rows. Their statements are explained as prepared statements, with generic and with custom plans.

The large form (ROTA_TEST_LONG=1) takes some minutes; its database is generated, or named in
ROTA_TEST_LARGE_DSN. The small form checks that a small version of the same database is consistent, and that
every page shows it.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rota.store.database import Database
from rota.store.query import Query, positional
from rota.testing.server import DatabaseServer
from rota.web.dashboard import PAGES
from support import large_database as large
from support.places import SUPPORT
from support.plans import Scan, scans
from support.scale import scale
from support.server_process import ServerProcess
from support.stage import MISCOUNTED, MISSHAPEN, PLACES

KEY = "k" * 22
SIGNED_IN = {"Authorization": f"Bearer {KEY}"}

THERE = scale(None, os.environ.get("ROTA_TEST_LARGE_DSN"))
APPS = SUPPORT / "dashboard_apps"

pytestmark = pytest.mark.timeout(scale(120, 3600))

WITHIN = 0.3
"""Seconds within which 95 of 100 answers must arrive."""

TIMES = scale(0, 40)

SOME = 20_000
"""Rows of a table that a sequential scan may read."""

BIG = {
    *(
        "jobs",
        "outcomes",
        "queued",
        "runs",
        "attempts",
        "minute_stats",
        "queue_samples",
        "ticks",
        "keys",
    ),
    *("logs", "steps", "audit", "once_calls", "sleeping", "iterations", "alerts"),
}

READ_WHOLE = {
    # Sorted by their ids; if there are more, only the latest are searched.
    ("run_list/scan_states", "queued"): 150_000,
    ("run_list/is_large", "queued"): 150_001,
    # The count stops at this number.
    ("metric/fleet_totals", "sleeping"): 100_000,
}

RUNS = (
    "/runs",
    "/runs?name=orders.collect",
    "/runs?name=crawl.tidy_up",
    "/runs?name=no.such.task",
    "/runs?name=etl",
    "/runs?name=wide",
    "/runs?queue=crawl",
    *(f"/runs?state={state}" for state in ("queued", "sleeping", "running", "quarantined")),
    *(f"/runs?state={state}" for state in ("succeeded", "failed", "cancelled", "expired")),
    "/runs?state=failed&name=crawl.tidy_up",
    "/runs?state=queued&queue=crawl",
    "/runs?state=failed&before=5000000",
    "/runs?state=failed&after=5000000",
    "/runs?after=5000000",
    "/runs?before=5000000",
    "/runs?key=order-13",
    "/runs?find=order-13",
    "/runs?find=said+no+to&state=failed",
    "/runs?since=2020-01-01T00:00&until=2099-01-01T00:00&queue=mail",
)


@dataclass(frozen=True)
class LargeDatabase:
    """Large database, and the paths of its pages."""

    dsn: str
    paths: list[str]


@pytest.fixture(scope="module")
def large_database(rota_server: DatabaseServer) -> Iterator[LargeDatabase]:
    with ExitStack() as stack:
        dsn = THERE
        if dsn is None:
            dsn = stack.enter_context(rota_server.database())
            large.fill(dsn, scale(large.SMALL, large.LARGE))
        with psycopg.connect(dsn) as connection:
            yield LargeDatabase(dsn, _paths(connection))


def _paths(connection: psycopg.Connection[Any]) -> list[str]:
    def one(text: str) -> Any:
        found = connection.execute(text.encode()).fetchone()
        assert found is not None
        return found[0]

    wide = one("select id from rota.runs where flow = 'wide'")
    runs = {
        "wide": wide,
        "a job of it": f"{wide}?job={wide + 7}",
        "flow": one("select max(id) from rota.runs where flow = 'etl'"),
        "failed flow": one(
            "select max(job) from rota.outcomes join rota.runs on id = job where state = 'failed'"
        ),
        "story": one("select job from rota.steps limit 1"),
        "failed": one("select max(job) from rota.attempts"),
        "queued": one("select min(job) from rota.queued where queue = 'crawl'"),
        "sleeping": one("select max(job) from rota.sleeping"),
        "running": one("select jobs[1] from rota.claims limit 1"),
        "quarantined": one("select max(job) from rota.quarantine"),
    }
    schedule = one("select min(name) from rota.schedules")
    return [
        *("/", "/?range=6h", "/?range=24h"),
        *("/queues", "/queues/default", "/queues/crawl"),
        *("/flows", "/flows/etl", "/flows/wide", "/flows/orders.collect"),
        *RUNS,
        *(f"/runs/{run}" for run in runs.values()),
        *("/workers", "/schedules", f"/schedules/{schedule}"),
        *("/coordination", "/alerts"),
        *("/audit", "/audit?operator=ada", "/audit?subject=10", "/audit?action=retry+run"),
    ]


def test_large_database_paths_cover_every_page(large_database: LargeDatabase) -> None:
    def fits(pattern: str, path: str) -> bool:
        wanted, given = pattern.split("/"), path.split("?")[0].split("/")
        return len(wanted) == len(given) and all(
            one == other or one.startswith("{") for one, other in zip(wanted, given, strict=True)
        )

    missing = [
        page.path
        for page in PAGES
        if not any(fits(page.path, path) for path in large_database.paths)
    ]
    assert missing == []


def test_large_database_is_consistent(large_database: LargeDatabase) -> None:
    """Each job is in exactly one state, and each waiting job has the right count of predecessors."""
    with psycopg.connect(large_database.dsn) as connection:
        astray = [
            (job, places)
            for job, places in connection.execute(PLACES.encode())
            if len(places) != 2 or "known" not in places
        ]
        assert astray == []
        assert connection.execute(MISCOUNTED.encode()).fetchall() == []
        assert connection.execute(MISSHAPEN.encode()).fetchall() == []


@pytest.fixture(scope="module")
def pages(large_database: LargeDatabase) -> Iterator[ServerProcess]:
    with tempfile.TemporaryDirectory() as directory:
        words = ["rota", "dashboard", "busy:app", "-p", "{port}", "--auth", "local"]
        log = Path(directory, "log")
        instance = ServerProcess(
            words, large_database.dsn, log, PYTHONPATH=str(APPS), ROTA_LOCAL_KEY=KEY
        )
        try:
            instance.up()
            yield instance
        finally:
            instance.close()


def test_large_database_pages_answer_quickly(
    large_database: LargeDatabase, pages: ServerProcess
) -> None:
    took: dict[str, list[float]] = {path: [] for path in large_database.paths}
    connection = http.client.HTTPConnection("127.0.0.1", pages.port, timeout=60)
    # One round over all pages at a time, so that no page profits from its own last request.
    for number in range(TIMES + 1):
        for path in large_database.paths:
            began = time.perf_counter()
            connection.request("GET", path, headers={"Accept": "text/html", **SIGNED_IN})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, f"{path}: {answer.status}\n{pages.said[-3000:]}"
            if number:
                took[path].append(time.perf_counter() - began)
    connection.close()
    if TIMES == 0:
        return
    figures = {path: statistics.quantiles(each, n=20)[-1] for path, each in took.items()}
    for path, seconds in sorted(figures.items(), key=lambda each: -each[1]):
        print(f"{seconds * 1000:6.0f} ms  {path}")
    late = {path: round(seconds, 3) for path, seconds in figures.items() if seconds > WITHIN}
    assert late == {}


def check_statements_read_few_rows(place: LargeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a thread, because Playwright's sync API keeps an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(asyncio.run, _statements_of_pages(place, monkeypatch)).result()
    found: list[str] = []
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("set statement_timeout = '60s'")
        for (path, _, _), query in asked.items():
            for mode in ("force_custom_plan", "force_generic_plan"):
                connection.execute(f"set plan_cache_mode = {mode}".encode())
                for scan in _scans(connection, query):
                    if _reads_too_much(query, scan):
                        found.append(f"{path}: {query.statement} ({mode}): {scan}")
    assert found == [], "\n".join(found)


if scale(False, True):
    # Small tables are always read in full.
    test_large_database_statements_read_few_rows = check_statements_read_few_rows


def _reads_too_much(query: Query[Any], scan: Scan) -> bool:
    if scan.table not in BIG or scan.kind not in ("Seq Scan", "Parallel Seq Scan"):
        return False
    return scan.read > READ_WHOLE.get((query.statement, scan.table), SOME)


def _scans(connection: psycopg.Connection[Any], query: Query[Any]) -> list[Scan]:
    text, names = positional(query.statement, "rota")
    if not text.lstrip().lower().startswith(("select", "with", "--")):
        return []
    connection.execute(b"prepare asked as " + text.encode(), prepare=False)
    values = sql.SQL(", ").join(sql.Literal(query.params[name]) for name in names)
    words = sql.SQL("explain (analyze, timing off, format json) execute asked")
    given = sql.SQL("{} ({})").format(words, values) if names else words
    try:
        [[plan]] = connection.execute(given, prepare=False).fetchall()
    finally:
        connection.execute("deallocate asked")
    return list(scans(plan[0]["Plan"]))


async def _statements_of_pages(
    place: LargeDatabase, monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str, str], Query[Any]]:
    """Return the statements of all pages, each once."""
    import httpx2

    from rota import Rota
    from rota.web.site import ALL_PARTS, site
    from rota.web.tokens_auth import LocalAccess

    asked: dict[tuple[str, str, str], Query[Any]] = {}
    at = ""
    known: set[tuple[str, str]] = set()
    really = Database.pipeline

    async def noting(self: Database, segments: Any, patience: float = 0.0) -> Any:
        for query in (each for segment in segments for each in segment):
            key = (query.statement, repr(sorted(query.params.items())))
            if key not in known:
                known.add(key)
                asked[at, *key] = query
        return await really(self, segments, patience)

    monkeypatch.setattr(Database, "pipeline", noting)
    async with Rota(place.dsn) as app:
        transport = httpx2.ASGITransport(
            app=site(app, auth=LocalAccess(key=KEY), bind="127.0.0.1", parts=ALL_PARTS)
        )
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", headers=SIGNED_IN
        ) as client:
            for at in place.paths:
                answer = await client.get(at)
                assert answer.status_code in (200, 404), f"{at}: {answer.text}"
    return asked
