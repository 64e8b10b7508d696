"""The page of runs shows how far the search got, and continues from there."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import pytest

from rota import Rota
from rota.app import run_search
from rota.store.read import run_list as store
from rota.web.site import ALL_PARTS

from .visitors import Visitors


@pytest.fixture
async def visitors(site_app: Rota) -> AsyncIterator[Visitors]:
    async with Visitors(site_app, parts=ALL_PARTS) as visitors:
        yield visitors


def links(text: str, word: str) -> list[str]:
    found = re.findall(rf'href="([^"]*)"[^>]*>[^<]*{word}', text)
    return [html.unescape(each) for each in found]


async def test_one_can_look_further_until_all_was_looked_through(
    visitors: Visitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await visitors.start("greet", input={"name": "Ada"}, key="the one")
    for _ in range(9):
        await visitors.start("greet", input={"name": "Ada"})
    monkeypatch.setattr(run_search, "_scan_limit", lambda matching: 2)
    monkeypatch.setattr(store, "MAX_SCAN_ROWS", 2)
    monkeypatch.setattr("rota.web.dashboard.runs.PAGE_SIZE", 2)
    monkeypatch.setattr(run_search, "SEARCH_SECONDS", 0.0)
    at, looks = "/runs?find=the+one", 0
    while True:
        text = (await visitors.ask("GET", at)).text
        if f'data-key="{wanted}"' in text:
            break
        assert "No match so far" in text
        assert "Searched runs created since" in text
        [at] = links(text, "search further")
        looks += 1
        assert looks < 10
    assert looks == 4
    # Backwards from the run: the page distinguishes an unfinished search from one without a match.
    text = (await visitors.ask("GET", f"/runs?find=the+one&after={int(wanted) + 1}")).text
    assert "No match so far" in text or "No run matches" in text


async def test_a_page_is_live_where_there_is_one(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "<b>Ada</b>"}, key="<i>key</i>")
    text = (await visitors.ask("GET", "/runs")).text
    assert f'data-key="{run}"' in text
    assert "&lt;i&gt;key&lt;/i&gt;" in text
    assert "<i>key" not in text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("state=nowhere", "state"),
        ("since=yesterday", "2026-11-16T15:04"),
        ("before=0", "before"),
        ("id=x", "id"),
        ("other=1", "other"),
    ],
)
async def test_what_cannot_be_asked_is_said(visitors: Visitors, query: str, words: str) -> None:
    answer = await visitors.ask("GET", f"/runs?{query}")
    assert answer.status_code == 422
    assert words in answer.text


async def test_a_job_of_a_flow_is_shown_with_its_run(visitors: Visitors) -> None:
    run = await visitors.start("etl", input={"day": "monday"})
    job = (await visitors.done("GET", f"/api/v1/runs/{run}"))["jobs"][0]["job"]
    for query in (f"find={job}", f"find=%23{job}", f"id={job}"):
        answer = await visitors.ask("GET", f"/runs?{query}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}?job={job}")
    answer = await visitors.ask("GET", "/runs?find=99999999999999999999999999")
    assert answer.status_code == 200
    assert (await visitors.ask("GET", "/runs?id=99999999999")).status_code == 404


def test_the_app_says_whether_a_name_is_a_flow() -> None:
    app = Rota("postgresql://nowhere/at_all")
    flow = app.flow("etl")

    @flow.task
    async def extract() -> None: ...

    @app.task
    async def greet() -> None: ...

    kinds = [
        run_search.with_kind(app, store.RunFilter(name=name)).kind
        for name in ("etl", "greet", "another", None)
    ]
    assert kinds == ["flow", "task", None, None]
