"""The overview in a browser: current activity, recent results, and items that need attention."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from support.browser_tabs import PHONE, DashboardSite, Tab
from support.minute_stats import insert_minute_stats


def problems_region(page: Page) -> Locator:
    return page.get_by_role("region", name="Needs attention")


def test_overview_problem_appears_and_clears_live(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/")
    line = problems_region(page).get_by_role("listitem").filter(has_text="greet in queue a-nobody")
    expect(line).to_have_count(0)

    run = dashboard_site.ask(
        "POST", "/runs", {"name": "greet", "queue": "a-nobody", "input": {"name": "x"}}
    )
    expect(line).to_contain_text("cannot run: no worker serves the queue")
    waiting = page.get_by_role("region", name="Waiting longest").get_by_role("row")
    expect(waiting.filter(has_text="a-nobody")).to_contain_text("1")
    dashboard_site.ask("POST", f"/runs/{run['run']}/cancel")
    expect(line).to_have_count(0)


def test_overview_failed_run_is_listed_and_linked(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/")
    run = dashboard_site.start("slip")

    listed = page.get_by_role("region", name="Failed last").get_by_role("link", name=f"#{run}")
    expect(listed).to_be_visible()
    listed.click()
    expect(page).to_have_url(f"{dashboard_site.url}/runs/{run}")


def test_overview_chart_range_is_in_the_address(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    insert_minute_stats(dashboard_site.dsn, "overview", "overview", 200, succeeded=77)
    page = admin_tab.goto("/?range=1h")
    expect(page.get_by_role("img", name="Jobs ended a minute, the last hour")).to_be_visible()

    page.get_by_role("navigation", name="How far back").get_by_role("link", name="6 h").click()
    expect(page).to_have_url(f"{dashboard_site.url}/?range=6h")
    picture = page.get_by_role("img", name="Jobs ended a minute, the last 6 hours")
    expect(picture).to_have_attribute("aria-label", re.compile("succeeded .* now, at most "))
    chosen = page.get_by_role("navigation", name="How far back").locator("[aria-current]")
    expect(chosen).to_have_text("6 h")
    # The figures are also available as a table, for screen readers.
    page.get_by_text("The figures as a table").click()
    rows = page.get_by_role("region", name="The figures as a table").locator("tbody tr")
    expect(rows).to_have_count(72)
    expect(rows.get_by_role("cell", name="77", exact=True)).to_have_count(1)


def test_overview_invalid_range_is_refused(admin_tab: Tab) -> None:
    admin_tab.expected = ["422"]
    page = admin_tab.goto("/?range=3y")
    expect(page.get_by_role("heading", name="Invalid request")).to_be_visible()


def test_overview_viewer_on_phone_sees_all_parts(open_tab: Callable[..., Tab]) -> None:
    width, height = PHONE
    page = open_tab("viewer", viewport={"width": width, "height": height}).goto("/")
    expect(page.get_by_role("img", name="Jobs queued, the last")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    expect(page.get_by_role("link", name=re.compile("workers"))).to_contain_text("1")
