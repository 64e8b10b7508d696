"""The page of a run offers only possible actions: forks from existing steps, and starts with a complete
input. Rows of the same moment stay separate.
"""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator

import pytest

from rota import Context, Rota
from rota.web.dashboard.run import job
from rota.web.site import ALL_PARTS
from support.site_client import SiteClient


@pytest.fixture
async def cook_client(site_dsn: str) -> AsyncIterator[SiteClient]:
    app = Rota(site_dsn, poll_interval=0.1)

    async def fetch(number: int) -> int:
        return number

    @app.task(queue="kitchen")
    async def cook(ctx: Context, text: str = "") -> int:
        ctx.progress(float("inf"), float("inf"))
        await ctx.step("begin", fetch, 0)
        done = await asyncio.gather(*(ctx.step("fetch", fetch, each) for each in range(5)))
        return sum(done)

    async with app, SiteClient(app, parts=ALL_PARTS) as visitors:
        yield visitors


async def run_cook(kitchen: SiteClient, **input: str) -> str:
    run = await kitchen.start("cook", input=input)
    async with kitchen.app.worker():
        await kitchen.app.run(int(run)).result(timeout=60)
    return run


async def test_run_page_fork_offers_each_step_name_once(cook_client: SiteClient) -> None:
    run = await run_cook(cook_client)
    text = (await cook_client.ask("GET", f"/runs/{run}")).text
    [select] = re.findall(r'<select id="fork-step".*?</select>', text, re.DOTALL)
    steps = re.findall(r"<option>(.*?)</option>", select)
    assert steps == ["begin", "fetch"]
    for step in steps:
        await cook_client.done("POST", f"/api/v1/runs/{run}/fork", json={"step": step})


async def test_run_page_simultaneous_events_have_distinct_keys(cook_client: SiteClient) -> None:
    run = await run_cook(cook_client)
    text = (await cook_client.ask("GET", f"/runs/{run}")).text
    [events] = re.findall(r'data-live="events".*?</section>', text, re.DOTALL)
    keys = re.findall(r'<tr[^>]* data-key="([^"]*)"', events)
    assert len(keys) >= 8
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(("letters", "offered"), [(30_000, True), (200_000, False)])
async def test_run_page_input_is_editable_whole_or_not_at_all(
    cook_client: SiteClient, letters: int, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MAX_EDITABLE_BYTES", 100_000)
    run = await cook_client.start("cook", input={"text": "x" * letters})
    text = (await cook_client.ask("GET", f"/runs/{run}")).text
    [field] = re.findall(r'<textarea id="again-input"[^>]*>(.*?)</textarea>', text, re.DOTALL)
    assert ("x" * letters in html.unescape(field)) is offered
    assert "more letters" not in field
    assert ("too long to edit here" in text) is not offered
