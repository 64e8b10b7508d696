"""Schedules in a browser: their states, and all actions on them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from playwright.sync_api import Locator, Page, expect

from support.accessibility import accessibility_violations
from support.browser_tabs import DashboardSite, Tab


def create_schedule(floor: DashboardSite, name: str = "", **more: Any) -> str:
    """Create a schedule that is not due during the test; return its name."""
    name = name or f"report {uuid4()}"
    body = {"name": name, "task": "greet", "input": {"name": "Ada"}, "cron": "0 7 1 1 *", **more}
    floor.ask("POST", "/schedules", body)
    return name


def schedule_path(name: str) -> str:
    return f"/schedules/{quote(name, safe='')}"


def confirm(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button").last.click()


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has_text=name)


def test_schedules_page_filters_by_name_prefix_and_state(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    mark = str(uuid4())
    first, second = (
        create_schedule(dashboard_site, f"{mark} a"),
        create_schedule(dashboard_site, f"{mark} b"),
    )
    create_schedule(dashboard_site, f"other {mark}")
    dashboard_site.ask("POST", f"{schedule_path(second)}/pause")
    page = admin_tab.goto("/schedules")
    page.get_by_label("Name begins with").fill(mark)
    page.get_by_role("button", name="find").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(row(page, first)).to_contain_text("0 7 1 1 *")
    page.get_by_role("link", name="paused").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(row(page, second)).to_be_visible()
    expect(page).to_have_url(re.compile(f"prefix={mark}"))


def test_schedule_page_shows_next_ticks_in_zone_and_utc(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site, cron="30 1 * * *", tz="America/New_York")
    page = admin_tab.goto(schedule_path(name))
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


def test_schedule_page_schedule_is_paused_with_reason_and_resumed(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site)
    page = admin_tab.goto(schedule_path(name))
    page.get_by_role("button", name="pause").click()
    page.get_by_label("Reason").fill("wait for the audit")
    page.get_by_role("dialog").get_by_role("button", name="pause").click()
    expect(page.get_by_text("wait for the audit", exact=True)).to_be_visible()
    expect(page.get_by_text("No tick is due")).to_be_visible()
    assert dashboard_site.ask("GET", schedule_path(name))["state"] == "paused"
    page.get_by_role("button", name="resume").click()
    expect(page.get_by_role("button", name="pause", exact=True).first).to_be_visible()
    assert dashboard_site.ask("GET", schedule_path(name))["state"] == "active"
    entries = dashboard_site.ask("GET", f"/audit?subject={quote(name)}")["entries"]
    assert [each["action"] for each in entries] == [
        *("resume schedule", "pause schedule", "create schedule")
    ]
    assert all(each["operator"].startswith("admin (token ") for each in entries)


def test_schedule_page_start_now_shows_its_result_live(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site)
    page = admin_tab.goto(schedule_path(name))
    expect(page.get_by_text("No ticks yet")).to_be_visible()
    page.get_by_role("button", name="start now").click()
    expect(page.get_by_role("dialog")).to_contain_text("besides those of its ticks")
    confirm(page)
    ticks = page.get_by_role("region", name="Last ticks")
    expect(ticks.get_by_text("succeeded")).to_be_visible()  # the worker runs it a moment later
    [tick] = dashboard_site.ask("GET", schedule_path(name))["ticks"]
    ticks.get_by_role("link", name=f"#{tick['run']}").click()
    expect(page).to_have_url(f"{dashboard_site.url}/runs/{tick['run']}")


def test_schedule_page_declined_start_starts_nothing(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site)
    page = admin_tab.goto(schedule_path(name))
    page.get_by_role("button", name="start now").click()
    page.get_by_role("dialog").get_by_role("button", name="no", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert dashboard_site.ask("GET", schedule_path(name))["ticks"] == []


def test_schedule_page_backfill_uses_the_zone_of_the_schedule(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(
        dashboard_site, cron="30 1 * * *", tz="Asia/Tokyo", starts="2025-12-01T00:00:00Z"
    )
    page = admin_tab.goto(schedule_path(name))
    page.get_by_role("button", name="backfill").click()
    page.get_by_label("From").fill("2026-01-01T01:30")
    page.get_by_label("Until, exclusive").fill("2026-01-03T01:30")
    page.get_by_role("dialog").get_by_role("button", name="backfill").click()
    ticks = page.get_by_role("region", name="Last ticks")
    expect(ticks.get_by_text("backfilled")).to_have_count(2)
    expect(ticks.get_by_text("succeeded")).to_have_count(2)
    planned = [each["planned"] for each in dashboard_site.ask("GET", schedule_path(name))["ticks"]]
    assert planned == ["2026-01-01T16:30:00Z", "2025-12-31T16:30:00Z"]


def test_schedule_page_refused_backfill_shows_the_reason(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    admin_tab.expected = ["422"]
    name = create_schedule(dashboard_site)
    page = admin_tab.goto(schedule_path(name))
    page.get_by_role("button", name="backfill").click()
    page.get_by_label("From").fill("2999-01-01T00:00")
    page.get_by_label("Until, exclusive").fill("2999-01-02T00:00")
    page.get_by_role("dialog").get_by_role("button", name="backfill").click()
    expect(page.get_by_text("later ticks start on time")).to_be_visible()


def test_schedule_page_delete_needs_confirmation(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site)
    page = admin_tab.goto(schedule_path(name))
    page.get_by_role("button", name="delete").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"Delete {name}")
    confirm(page)
    expect(page).to_have_url(f"{dashboard_site.url}/schedules")
    admin_tab.expected = ["404"]
    admin_tab.goto(schedule_path(name))
    expect(page.get_by_text("there is no schedule")).to_be_visible()


def test_schedule_page_unusual_name_is_shown_and_updated_live(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    name = create_schedule(
        dashboard_site, f"tenants/ünï 100% <b>#1?</b> {'long' * 25} {uuid4()}"[:200]
    )
    page = admin_tab.goto(schedule_path(name))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    dashboard_site.ask("POST", f"{schedule_path(name)}/pause", {"reason": "behind its back"})
    expect(page.get_by_text("behind its back")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_schedule_page_viewer_sees_no_reason_input_or_action(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite
) -> None:
    name = create_schedule(dashboard_site, input={"name": "s3cret"})
    dashboard_site.ask("POST", f"{schedule_path(name)}/pause", {"reason": "s3cret reason"})
    page = open_tab("viewer").goto(schedule_path(name))
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    assert "s3cret" not in page.content()
    expect(page.locator("main").get_by_role("button")).to_have_count(0)
    desk = open_tab("operator").goto(schedule_path(name))
    expect(desk.get_by_role("button", name="delete")).to_have_count(0)
    expect(desk.get_by_text("s3cret reason")).to_be_visible()


def test_schedule_page_has_no_accessibility_violations(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    assert (
        accessibility_violations(admin_tab.goto(schedule_path(create_schedule(dashboard_site))))
        == []
    )
