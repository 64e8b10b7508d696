"""Flows and tasks in a browser: graphs with statistics, and starting them."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from .counted import tally
from .stage import Floor, Tab
from .usable import faults


def row(page: Page, table: str, name: str) -> Locator:
    named = page.get_by_role("link", name=name, exact=True)
    return page.get_by_role("region", name=table).get_by_role("row").filter(has=named)


def test_flows_and_tasks_are_listed_with_how_they_have_done(desk: Tab, floor: Floor) -> None:
    tally(floor.dsn, "default", "far-away", 3, succeeded=9, failed=1, retried=4, took=20, longest=6)
    tally(floor.dsn, "default", "far-away", 100, failed=10)
    page = desk.goto("/flows?range=1h&find=FAR")

    mine = row(page, "Tasks", "far-away")
    for words in ("not in this app", "10", "90%", "4", "2 s", "6 s"):
        expect(mine).to_contain_text(words)
    expect(page.get_by_role("region", name="Tasks").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("region", name="Flows")).to_contain_text("No flow matches")
    page.get_by_role("link", name="6 h").click()
    expect(page).to_have_url(f"{floor.url}/flows?range=6h&find=FAR")
    expect(mine).to_contain_text("45%")

    page.get_by_label("Name").fill("")
    page.get_by_role("button", name="find").click()
    expect(row(page, "Flows", "etl")).to_contain_text("5")
    expect(row(page, "Tasks", "unserved")).to_contain_text("nobody")
    # Tasks of flows are shown with their flow.
    expect(row(page, "Tasks", "etl.extract")).to_have_count(0)


def test_a_flow_is_drawn_and_its_runs_are_followed(desk: Tab, floor: Floor) -> None:
    page = desk.goto("/flows/etl")
    picture = page.get_by_role("img", name="etl: 5 jobs")
    for name in ("extract", "transform", "approve", "check", "load"):
        expect(picture.locator("text.name", has_text=name)).to_have_count(1)
    run = floor.ask("POST", "/runs", {"name": "etl", "input": {"day": "monday"}})["run"]

    last = page.get_by_role("region", name="Its last runs").get_by_role("row")
    mine = last.filter(has=page.get_by_role("link", name=f"#{run}"))
    expect(mine).to_contain_text("running")
    floor.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": True})
    expect(mine).to_contain_text("succeeded")
    expect(row(page, "Its tasks", "load")).to_contain_text("100%")
    expect(row(page, "Its tasks", "load").locator("td").nth(2)).not_to_have_text("0")
    assert faults(page) == []


def test_a_run_is_started_with_what_was_written_to_the_digit(desk: Tab, floor: Floor) -> None:
    page = desk.goto("/flows/echo")
    page.get_by_role("button", name="Start a run").click()
    form = page.get_by_role("dialog", name="Start echo")
    expect(form).to_contain_text("value: Any = None")
    form.get_by_label("Input").fill('{"value": 9007199254740993}')
    form.get_by_label("Key").fill("started by hand")
    form.get_by_role("button", name="start").click()

    expect(page).to_have_url(re.compile(rf"{floor.url}/runs/[0-9]+$"))
    run = floor.ask("GET", f"/runs/{page.url.rpartition('/')[2]}")
    assert run["input"] == {"value": 9007199254740993}
    assert run["key"] == "started by hand"


def test_what_cannot_be_started_is_told_and_nothing_is_lost(desk: Tab) -> None:
    desk.expected = ["422"]
    page = desk.goto("/flows/greet")
    page.get_by_role("button", name="Start a run").click()
    form = page.get_by_role("dialog", name="Start greet")
    given = form.get_by_label("Input")
    expect(given).to_have_value('{\n  "name": ""\n}')
    expect(form).to_contain_text("name: str must be given")
    assert faults(page) == []
    given.fill("{name: 1}")
    form.get_by_role("button", name="start").click()
    expect(page.get_by_text("is not valid JSON")).to_be_visible()
    given.fill('{"nom": "x"}')
    form.get_by_role("button", name="start").click()
    expect(page.get_by_text(re.compile("has no parameter|nom"))).to_be_visible()
    expect(given).to_have_value('{"nom": "x"}')


def test_whoever_only_looks_starts_nothing(look_as: Callable[..., Tab]) -> None:
    page = look_as("viewer").goto("/flows/greet")
    expect(page.get_by_role("heading", name="greet")).to_be_visible()
    expect(page.get_by_role("button", name="Start a run")).to_have_count(0)
    expect(page.locator("[data-act]").filter(has_text="start")).to_have_count(0)


def test_a_task_shows_its_past_and_how_it_is_written(desk: Tab, floor: Floor) -> None:
    tally(floor.dsn, "default", "flaky", 2, succeeded=4, took=6, longest=3)
    run = floor.start("flaky")
    page = desk.goto("/flows/flaky?range=1h")

    expect(page.get_by_role("img", name="Time an attempt took, the last hour")).to_be_visible()
    expect(page.get_by_role("region", name="As it is written")).to_contain_text("attempts")
    last = page.get_by_role("region", name="Its last runs").get_by_role("row")
    mine = last.filter(has=page.get_by_role("link", name=f"#{run}"))
    expect(mine).to_contain_text("succeeded")
    expect(mine).to_contain_text("3")


def test_what_nobody_has_heard_of_is_not_there(desk: Tab) -> None:
    desk.expected = ["404"]
    page = desk.goto("/flows/never-heard-of")
    expect(page.get_by_text("there is no flow or task")).to_be_visible()
