"""Bulk actions over HTTP: counted first, done in batches, and only on the runs that matched."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.app import bulk_actions, run_search
from rota.store.read import run_list as store

from .visitors import Visitors

RUNS = "/api/v1/runs"


async def start(visitors: Visitors, count: int, queue: str, **more: Any) -> list[str]:
    body = {"input": {"name": "Ada"}, "queue": queue, **more}
    return [await visitors.start("greet", **body) for _ in range(count)]


async def states(visitors: Visitors, runs: list[str]) -> list[str]:
    return [await visitors.app.run(int(run)).status() for run in runs]


async def every(visitors: Visitors, act: str, **body: Any) -> list[dict[str, Any]]:
    """Send batch after batch, as a page does."""
    portions: list[dict[str, Any]] = []
    cursor = None
    while not portions or cursor is not None:
        sent = {**body, **({} if cursor is None else {"cursor": cursor})}
        portions.append(await visitors.done("POST", f"{RUNS}/{act}", who="operator", json=sent))
        cursor = portions[-1]["next"]
        assert len(portions) < 100
    return portions


async def count(visitors: Visitors, **query: Any) -> dict[str, Any]:
    found: dict[str, Any] = await visitors.done("GET", f"{RUNS}/count", params=query)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches and scan windows small."""
    monkeypatch.setattr(bulk_actions, "BATCH_RUNS", 3)
    monkeypatch.setattr(run_search, "_scan_limit", lambda matching: 4)
    monkeypatch.setattr(store, "MAX_SCAN_ROWS", 4)
    monkeypatch.setattr(run_search, "SEARCH_SECONDS", 0.0)


@pytest.mark.usefixtures("small")
async def test_what_matches_is_cancelled_in_portions_and_nothing_else(visitors: Visitors) -> None:
    meant = await start(visitors, 8, "meant")
    asleep = await start(visitors, 2, "meant", delay=600)
    others = await start(visitors, 2, "others")

    found = await count(visitors, queue="meant")
    assert (found["count"], found["exact"]) == (10, True)
    later = await start(visitors, 2, "meant")
    portions = await every(visitors, "cancel", queue="meant", upto=found["upto"])

    assert len(portions) >= 4
    assert all(each["done"] <= 3 for each in portions)
    assert sum(each["done"] for each in portions) == 10
    assert set(await states(visitors, [*meant, *asleep])) == {"cancelled"}
    # Runs that were started after the count are not affected.
    assert set(await states(visitors, [*others, *later])) == {"queued"}


async def test_a_portion_that_takes_long_ends_where_it_is(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_actions, "BATCH_SECONDS", 0.0)
    runs = await start(visitors, 10, "slow")
    portions = await every(visitors, "cancel", ids=runs)
    assert [each["done"] for each in portions] == [4, 4, 2]
    assert set(await states(visitors, runs)) == {"cancelled"}


@pytest.mark.usefixtures("small")
async def test_what_ended_badly_is_tried_again_once_each(visitors: Visitors) -> None:
    runs = await start(visitors, 5, "again")
    kept = await start(visitors, 2, "again")
    for run in runs:
        await visitors.app.run(int(run)).cancel()
    found = await count(visitors, queue="again", action="retry")
    assert (found["count"], found["exact"]) == (5, True)
    first = await visitors.done(
        "POST", f"{RUNS}/retry", json={"queue": "again", "upto": found["upto"]}
    )
    # A run that was already retried is cancelled again while the other batches are in progress.
    await visitors.app.run(int(runs[-1])).cancel()
    body = {"queue": "again", "upto": found["upto"], "cursor": first["next"]}
    portions = await every(visitors, "retry", **body)
    assert first["done"] + sum(each["done"] for each in portions) == 5
    assert await states(visitors, runs) == ["queued"] * 4 + ["cancelled"]
    assert await states(visitors, kept) == ["queued"] * 2


async def test_each_is_written_down_with_who_did_it(visitors: Visitors) -> None:
    runs = await start(visitors, 3, "noted")
    await every(visitors, "cancel", ids=runs)
    audit = await visitors.done("GET", "/api/v1/audit")
    noted = [
        (each["operator"].split()[0], each["action"], each["subject"])
        for each in audit["entries"]
        if each["subject"] in runs
    ]
    assert sorted(noted) == [("operator", "cancel run", run) for run in runs]


async def test_those_selected_are_done_as_far_as_it_is_not_too_late(visitors: Visitors) -> None:
    runs = await start(visitors, 3, "selected")
    await visitors.app.run(int(runs[0])).cancel()
    [portion] = await every(visitors, "cancel", ids=[*runs, "999999999999"])
    assert portion == {"done": 2, "skipped": 0, "next": None}
    # A job of a flow is not a run and is not cancelled by its id here.
    flow = await visitors.start("etl", input={"day": "monday"})
    shown = await visitors.done("GET", f"{RUNS}/{flow}")
    [portion] = await every(visitors, "cancel", ids=[shown["jobs"][0]["job"]])
    assert portion["done"] == 0
    assert await visitors.app.run(int(flow)).status() == "running"


async def test_whoever_comes_too_late_is_counted_as_spared(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await start(visitors, 4, "late")
    for run in runs:
        await visitors.app.run(int(run)).cancel()
    found, go = asyncio.Event(), asyncio.Event()
    looked = run_search.find_runs

    async def slowly(*args: Any, **more: Any) -> Any:
        answer = await looked(*args, **more)
        found.set()
        await go.wait()
        return answer

    monkeypatch.setattr(bulk_actions, "find_runs", slowly)
    asked = asyncio.create_task(every(visitors, "retry", ids=runs))
    await found.wait()
    for run in runs[:3]:
        await visitors.app.run(int(run)).retry()
    go.set()
    [portion] = await asked
    assert portion == {"done": 1, "skipped": 3, "next": None}


async def test_of_many_it_is_said_that_there_are_many(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_actions, "MAX_COUNTED_RUNS", 3)
    await start(visitors, 4, "many")
    assert (await count(visitors, queue="many"))["exact"] is False
    monkeypatch.setattr(bulk_actions, "MAX_COUNTED_RUNS", 4)
    found = await count(visitors, queue="many")
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
async def test_nothing_is_cancelled_by_a_slip(
    visitors: Visitors, body: dict[str, Any], words: str
) -> None:
    [run] = await start(visitors, 1, "slip")
    answer = await visitors.ask("POST", f"{RUNS}/cancel", who="operator", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]["message"]
    assert await states(visitors, [run]) == ["queued"]


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00"])
async def test_the_ends_of_the_calendar_are_times_too(visitors: Visitors, at: str) -> None:
    for name in ("since", "until"):
        await visitors.done("GET", RUNS, params={name: at})


async def test_viewers_learn_nothing_of_what_went_in_by_looking_for_it(visitors: Visitors) -> None:
    body = {"input": {"name": "a-secret-name"}, "queue": "secret"}
    run = await visitors.start("greet", **body)
    for who, expected in (("viewer", []), ("operator", [run])):
        query = {"find": "a-secret-name", "queue": "secret"}
        found = await visitors.done("GET", RUNS, who=who, params=query)
        assert [each["run"] for each in found["runs"]] == expected
        query["action"] = "cancel"
        counted = await visitors.done("GET", f"{RUNS}/count", who=who, params=query)
        assert counted["count"] == len(expected)
    assert (await visitors.ask("POST", f"{RUNS}/cancel", who="viewer")).status_code == 403
