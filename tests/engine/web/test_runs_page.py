"""The page of runs shows how far the search got, and continues from there."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import pytest

from rota import Rota
from rota.operations import run_search
from rota.store.read import run_list as store
from rota.web.site import ALL_PARTS
from support.site_client import SiteClient


@pytest.fixture
async def site_client(site_app: Rota) -> AsyncIterator[SiteClient]:
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        yield visitors


def links(text: str, word: str) -> list[str]:
    found = re.findall(rf'href="([^"]*)"[^>]*>[^<]*{word}', text)
    return [html.unescape(each) for each in found]


async def test_runs_page_limited_search_continues_until_the_match(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = await site_client.start("greet", input={"name": "Ada"}, key="the one")
    for _ in range(9):
        await site_client.start("greet", input={"name": "Ada"})
    monkeypatch.setattr(run_search, "_scan_limit", lambda matching: 2)
    monkeypatch.setattr(store, "MAX_SCAN_ROWS", 2)
    monkeypatch.setattr("rota.web.dashboard.runs.PAGE_SIZE", 2)
    monkeypatch.setattr(run_search, "SEARCH_SECONDS", 0.0)
    at, looks = "/runs?find=the+one", 0
    while True:
        text = (await site_client.ask("GET", at)).text
        if f'data-key="{wanted}"' in text:
            break
        assert "No match so far" in text
        assert "Searched runs created since" in text
        [at] = links(text, "search further")
        looks += 1
        assert looks < 10
    assert looks == 4
    # Backwards from the run: the page distinguishes an unfinished search from one without a match.
    text = (await site_client.ask("GET", f"/runs?find=the+one&after={int(wanted) + 1}")).text
    assert "No match so far" in text or "No run matches" in text


async def test_runs_page_lists_run_with_escaped_key(site_client: SiteClient) -> None:
    run = await site_client.start("greet", input={"name": "<b>Ada</b>"}, key="<i>key</i>")
    text = (await site_client.ask("GET", "/runs")).text
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
async def test_runs_page_invalid_query_is_refused_with_reason(
    site_client: SiteClient, query: str, words: str
) -> None:
    answer = await site_client.ask("GET", f"/runs?{query}")
    assert answer.status_code == 422
    assert words in answer.text


async def test_runs_page_search_for_job_id_redirects_to_its_run(site_client: SiteClient) -> None:
    run = await site_client.start("etl", input={"day": "monday"})
    job = (await site_client.done("GET", f"/api/v1/runs/{run}"))["jobs"][0]["job"]
    for query in (f"find={job}", f"find=%23{job}", f"id={job}"):
        answer = await site_client.ask("GET", f"/runs?{query}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}?job={job}")
    answer = await site_client.ask("GET", "/runs?find=99999999999999999999999999")
    assert answer.status_code == 200
    assert (await site_client.ask("GET", "/runs?id=99999999999")).status_code == 404


def test_run_filter_kind_is_taken_from_the_app() -> None:
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
