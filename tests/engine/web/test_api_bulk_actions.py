"""Bulk actions over HTTP: counted first, done in batches, and only on the runs that matched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.operations import bulk, run_search
from rota.store.read import run_list as store
from support.site_client import SiteClient

RUNS = "/api/v1/runs"


async def start(visitors: SiteClient, count: int, queue: str, **more: Any) -> list[str]:
    body = {"input": {"name": "Ada"}, "queue": queue, **more}
    return [await visitors.start("greet", **body) for _ in range(count)]


async def states(visitors: SiteClient, runs: list[str]) -> list[str]:
    return [await visitors.app.run(int(run)).status() for run in runs]


async def act_in_batches(visitors: SiteClient, act: str, **body: Any) -> list[dict[str, Any]]:
    """Send batch after batch, as a page does."""
    portions: list[dict[str, Any]] = []
    cursor = None
    while not portions or cursor is not None:
        sent = {**body, **({} if cursor is None else {"cursor": cursor})}
        portions.append(await visitors.done("POST", f"{RUNS}/{act}", who="operator", json=sent))
        cursor = portions[-1]["next"]
        assert len(portions) < 100
    return portions


async def count(visitors: SiteClient, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await visitors.done("GET", f"{RUNS}/count", params=query)
    return found


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches and scan windows small."""
    monkeypatch.setattr(bulk, "BATCH_RUNS", 3)
    monkeypatch.setattr(run_search, "_scan_limit", lambda matching: 4)
    monkeypatch.setattr(store, "MAX_SCAN_ROWS", 4)
    monkeypatch.setattr(run_search, "SEARCH_SECONDS", 0.0)


@pytest.mark.usefixtures("small_batches")
async def test_bulk_cancel_filter_cancels_only_counted_runs_in_batches(
    site_client: SiteClient,
) -> None:
    meant = await start(site_client, 8, "meant")
    asleep = await start(site_client, 2, "meant", delay=600)
    others = await start(site_client, 2, "others")

    found = await count(site_client, queue="meant")
    assert (found["count"], found["exact"]) == (10, True)
    later = await start(site_client, 2, "meant")
    portions = await act_in_batches(site_client, "cancel", queue="meant", upto=found["upto"])

    assert len(portions) >= 4
    assert all(each["done"] <= 3 for each in portions)
    assert sum(each["done"] for each in portions) == 10
    assert set(await states(site_client, [*meant, *asleep])) == {"cancelled"}
    # Runs that were started after the count are not affected.
    assert set(await states(site_client, [*others, *later])) == {"queued"}


async def test_bulk_cancel_slow_batch_ends_early_and_next_continues(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH_SECONDS", 0.0)
    runs = await start(site_client, 10, "slow")
    portions = await act_in_batches(site_client, "cancel", ids=runs)
    assert [each["done"] for each in portions] == [4, 4, 2]
    assert set(await states(site_client, runs)) == {"cancelled"}


@pytest.mark.usefixtures("small_batches")
async def test_bulk_retry_across_batches_retries_each_run_once(site_client: SiteClient) -> None:
    runs = await start(site_client, 5, "again")
    kept = await start(site_client, 2, "again")
    for run in runs:
        await site_client.app.run(int(run)).cancel()
    found = await count(site_client, queue="again", action="retry")
    assert (found["count"], found["exact"]) == (5, True)
    first = await site_client.done(
        "POST", f"{RUNS}/retry", json={"queue": "again", "upto": found["upto"]}
    )
    # A run that was already retried is cancelled again while the other batches are in progress.
    await site_client.app.run(int(runs[-1])).cancel()
    body = {"queue": "again", "upto": found["upto"], "cursor": first["next"]}
    portions = await act_in_batches(site_client, "retry", **body)
    assert first["done"] + sum(each["done"] for each in portions) == 5
    assert await states(site_client, runs) == ["queued"] * 4 + ["cancelled"]
    assert await states(site_client, kept) == ["queued"] * 2


async def test_bulk_cancel_audits_each_run_with_its_operator(site_client: SiteClient) -> None:
    runs = await start(site_client, 3, "noted")
    await act_in_batches(site_client, "cancel", ids=runs)
    audit = await site_client.done("GET", "/api/v1/audit")
    noted = [
        (each["operator"].split()[0], each["action"], each["subject"])
        for each in audit["entries"]
        if each["subject"] in runs
    ]
    assert sorted(noted) == [
        *(("admin", "start run", run) for run in runs),
        *(("operator", "cancel run", run) for run in runs),
    ]


async def test_bulk_cancel_by_ids_cancels_only_open_runs(site_client: SiteClient) -> None:
    runs = await start(site_client, 3, "selected")
    await site_client.app.run(int(runs[0])).cancel()
    [portion] = await act_in_batches(site_client, "cancel", ids=[*runs, "999999999999"])
    assert portion == {"done": 2, "skipped": 0, "next": None}
    # A job of a flow is not a run and is not cancelled by its id here.
    flow = await site_client.start("etl", input={"day": "monday"})
    shown = await site_client.done("GET", f"{RUNS}/{flow}")
    [portion] = await act_in_batches(site_client, "cancel", ids=[shown["jobs"][0]["job"]])
    assert portion["done"] == 0
    assert await site_client.app.run(int(flow)).status() == "running"


async def test_bulk_retry_runs_retried_meanwhile_are_counted_as_skipped(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await start(site_client, 4, "late")
    for run in runs:
        await site_client.app.run(int(run)).cancel()
    found, go = asyncio.Event(), asyncio.Event()
    looked = run_search.find_runs

    async def slowly(*args: Any, **more: Any) -> Any:
        answer = await looked(*args, **more)
        found.set()
        await go.wait()
        return answer

    monkeypatch.setattr(bulk, "find_runs", slowly)
    asked = asyncio.create_task(act_in_batches(site_client, "retry", ids=runs))
    await found.wait()
    for run in runs[:3]:
        await site_client.app.run(int(run)).retry()
    go.set()
    [portion] = await asked
    assert portion == {"done": 1, "skipped": 3, "next": None}


async def test_run_count_above_maximum_is_marked_inexact(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MAX_COUNTED_RUNS", 3)
    await start(site_client, 4, "many")
    assert (await count(site_client, queue="many"))["exact"] is False
    monkeypatch.setattr(bulk, "MAX_COUNTED_RUNS", 4)
    found = await count(site_client, queue="many")
    assert (found["count"], found["exact"]) == (4, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "but not both"),
        ({"queue": "x"}, "but not both"),
        ({"upto": "5", "ids": ["1"]}, "or `ids`, but not both"),
        ({"ids": []}, "length >= 1"),
        ({"upto": "5", "state": "succeeded"}, "a run in state succeeded cannot be cancelled"),
        ({"upto": "5", "nonsense": 1}, "nonsense"),
    ],
)
async def test_bulk_cancel_invalid_selection_is_refused(
    site_client: SiteClient, body: dict[str, Any], words: str
) -> None:
    [run] = await start(site_client, 1, "slip")
    answer = await site_client.ask("POST", f"{RUNS}/cancel", who="operator", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]
    assert await states(site_client, [run]) == ["queued"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00"])
async def test_runs_list_extreme_since_and_until_are_accepted(
    site_client: SiteClient, at: str
) -> None:
    for name in ("since", "until"):
        await site_client.done("GET", RUNS, params={name: at})


async def test_run_search_viewer_does_not_match_input(site_client: SiteClient) -> None:
    body = {"input": {"name": "a-secret-name"}, "queue": "secret"}
    run = await site_client.start("greet", **body)
    for who, expected in (("viewer", []), ("operator", [run])):
        query = {"find": "a-secret-name", "queue": "secret"}
        found = await site_client.done("GET", RUNS, who=who, params=query)
        assert [each["run"] for each in found["runs"]] == expected
        query["action"] = "cancel"
        counted = await site_client.done("GET", f"{RUNS}/count", who=who, params=query)
        assert counted["count"] == len(expected)
    assert (await site_client.ask("POST", f"{RUNS}/cancel", who="viewer")).status_code == 403
