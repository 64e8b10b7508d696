"""Schedules in a browser: their states, and all actions on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from playwright.sync_api import Locator, Page, expect

from .stage import Floor, Tab
from .usable import faults


def make(floor: Floor, name: str = "", **more: Any) -> str:
    """Create a schedule that is not due during the test; return its name."""
    name = name or f"report {uuid4()}"
    body = {"name": name, "task": "greet", "input": {"name": "Ada"}, "cron": "0 7 1 1 *", **more}
    floor.ask("POST", "/schedules", body)
    return name


def at(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


def yes(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button").last.click()


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name)


def test_one_is_found_by_how_its_name_begins_and_by_its_state(desk: Tab, floor: Floor) -> None:
    mark = str(uuid4())
    first, second = make(floor, f"{mark} a"), make(floor, f"{mark} b")
    make(floor, f"other {mark}")
    floor.ask("POST", f"{at(second)}/pause")
    page = desk.goto("/schedules")
    page.get_by_label("Name begins with").fill(mark)
    page.get_by_role("button", name="find").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(row(page, first)).to_contain_text("0 7 1 1 *")
    page.get_by_role("link", name="paused").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(row(page, second)).to_be_visible()
    expect(page).to_have_url(re.compile(f"prefix={mark}"))


def test_it_says_when_it_comes_in_its_zone_and_in_utc(desk: Tab, floor: Floor) -> None:
    name = make(floor, cron="30 1 * * *", tz="America/New_York")
    page = desk.goto(at(name))
    expect(page.get_by_text("At 01:30 every day", exact=True)).to_be_visible()
    ticks = page.get_by_role("region", name="Next ticks").locator("tbody tr")
    expect(ticks).to_have_count(5)
    for each in range(5):
        said = ticks.nth(each).inner_text()
        zoned = re.search(r"(\d\d):30:00 (-0[45])00", said)
        utc = re.search(r"(\d\d):30:00 UTC", said)
        assert zoned, said
        assert utc, said
        assert int(zoned[1]) - int(zoned[2]) == int(utc[1])


def test_it_is_paused_with_a_reason_and_resumed(desk: Tab, floor: Floor) -> None:
    name = make(floor)
    page = desk.goto(at(name))
    page.get_by_role("button", name="pause").click()
    page.get_by_label("Reason").fill("wait for the audit")
    page.get_by_role("dialog").get_by_role("button", name="pause").click()
    expect(page.get_by_text("wait for the audit", exact=True)).to_be_visible()
    expect(page.get_by_text("No tick is due")).to_be_visible()
    assert floor.ask("GET", at(name))["state"] == "paused"
    page.get_by_role("button", name="resume").click()
    expect(page.get_by_role("button", name="pause", exact=True).first).to_be_visible()
    assert floor.ask("GET", at(name))["state"] == "active"
    entries = floor.ask("GET", f"/audit?subject={quote(name)}")["entries"]
    assert [each["action"] for each in entries] == [
        *("resume schedule", "pause schedule", "create schedule")
    ]
    assert all(each["operator"].startswith("admin (token ") for each in entries)


def test_it_is_started_now_and_what_came_of_it_is_seen_without_asking_again(
    desk: Tab, floor: Floor
) -> None:
    name = make(floor)
    page = desk.goto(at(name))
    expect(page.get_by_text("No ticks yet")).to_be_visible()
    page.get_by_role("button", name="start now").click()
    expect(page.get_by_role("dialog")).to_contain_text("besides those of its ticks")
    yes(page)
    ticks = page.get_by_role("region", name="Last ticks")
    expect(ticks.get_by_text("succeeded")).to_be_visible()  # the worker runs it a moment later
    [tick] = floor.ask("GET", at(name))["ticks"]
    ticks.get_by_role("link", name=f"#{tick['run']}").click()
    expect(page).to_have_url(f"{floor.url}/runs/{tick['run']}")


def test_whoever_thinks_again_starts_nothing(desk: Tab, floor: Floor) -> None:
    name = make(floor)
    page = desk.goto(at(name))
    page.get_by_role("button", name="start now").click()
    page.get_by_role("dialog").get_by_role("button", name="no", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert floor.ask("GET", at(name))["ticks"] == []


def test_a_time_that_is_over_is_backfilled_by_the_clock_of_the_schedule(
    desk: Tab, floor: Floor
) -> None:
    name = make(floor, cron="30 1 * * *", tz="Asia/Tokyo", starts="2025-12-01T00:00:00Z")
    page = desk.goto(at(name))
    page.get_by_role("button", name="backfill").click()
    page.get_by_label("From").fill("2026-01-01T01:30")
    page.get_by_label("Until, exclusive").fill("2026-01-03T01:30")
    page.get_by_role("dialog").get_by_role("button", name="backfill").click()
    ticks = page.get_by_role("region", name="Last ticks")
    expect(ticks.get_by_text("backfilled")).to_have_count(2)
    expect(ticks.get_by_text("succeeded")).to_have_count(2)
    planned = [each["planned"] for each in floor.ask("GET", at(name))["ticks"]]
    assert planned == ["2026-01-01T16:30:00Z", "2025-12-31T16:30:00Z"]


def test_what_the_api_refuses_is_said_in_its_words(desk: Tab, floor: Floor) -> None:
    desk.expected = ["422"]
    name = make(floor)
    page = desk.goto(at(name))
    page.get_by_role("button", name="backfill").click()
    page.get_by_label("From").fill("2999-01-01T00:00")
    page.get_by_label("Until, exclusive").fill("2999-01-02T00:00")
    page.get_by_role("dialog").get_by_role("button", name="backfill").click()
    expect(page.get_by_text("later ticks start on time")).to_be_visible()


def test_it_is_forgotten_once_that_is_confirmed(desk: Tab, floor: Floor) -> None:
    name = make(floor)
    page = desk.goto(at(name))
    page.get_by_role("button", name="delete").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Delete {name}")
    yes(page)
    expect(page).to_have_url(f"{floor.url}/schedules")
    desk.expected = ["404"]
    desk.goto(at(name))
    expect(page.get_by_text("there is no schedule")).to_be_visible()


def test_a_name_may_hold_anything_and_its_page_stays_live(desk: Tab, floor: Floor) -> None:
    name = make(floor, f"tenants/ünï 100% <b>#1?</b> {'long' * 25} {uuid4()}"[:200])
    page = desk.goto(at(name))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    floor.ask("POST", f"{at(name)}/pause", {"reason": "behind its back"})
    expect(page.get_by_text("behind its back")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_viewer_sees_neither_reasons_nor_input_and_is_offered_nothing(
    look_as: Callable[..., Tab], floor: Floor
) -> None:
    name = make(floor, input={"name": "s3cret"})
    floor.ask("POST", f"{at(name)}/pause", {"reason": "s3cret reason"})
    page = look_as("viewer").goto(at(name))
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    assert "s3cret" not in page.content()
    expect(page.locator("main").get_by_role("button")).to_have_count(0)
    desk = look_as("operator").goto(at(name))
    expect(desk.get_by_role("button", name="delete")).to_have_count(0)
    expect(desk.get_by_text("s3cret reason")).to_be_visible()


def test_everybody_can_use_the_page_of_one(desk: Tab, floor: Floor) -> None:
    assert faults(desk.goto(at(make(floor)))) == []
