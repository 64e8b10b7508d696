"""Flows and tasks in a browser: graphs with statistics, and starting them."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from support.accessibility import accessibility_violations
from support.browser_tabs import DashboardSite, Tab
from support.minute_stats import insert_minute_stats


def row(page: Page, table: str, name: str) -> Locator:
    named = page.get_by_role("link", name=name, exact=True)
    return page.get_by_role("region", name=table).get_by_role("row").filter(has=named)


def test_flows_page_lists_flows_and_tasks_with_statistics(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    insert_minute_stats(
        dashboard_site.dsn,
        "default",
        "far-away",
        3,
        succeeded=9,
        failed=1,
        retried=4,
        took=20,
        longest=6,
    )
    insert_minute_stats(dashboard_site.dsn, "default", "far-away", 100, failed=10)
    page = admin_tab.goto("/flows?range=1h&find=FAR")

    mine = row(page, "Tasks", "far-away")
    for words in ("not in this app", "10", "90%", "4", "2 s", "6 s"):
        expect(mine).to_contain_text(words)
    expect(page.get_by_role("region", name="Tasks").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("region", name="Flows")).to_contain_text("No flow matches")
    page.get_by_role("link", name="6 h").click()
    expect(page).to_have_url(f"{dashboard_site.url}/flows?range=6h&find=FAR")
    expect(mine).to_contain_text("45%")

    page.get_by_label("Name").fill("")
    page.get_by_role("button", name="find").click()
    expect(row(page, "Flows", "etl")).to_contain_text("5")
    expect(row(page, "Tasks", "unserved")).to_contain_text("nobody")
    # Tasks of flows are shown with their flow.
    expect(row(page, "Tasks", "etl.extract")).to_have_count(0)


def test_flow_page_draws_graph_and_updates_last_runs(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/flows/etl")
    picture = page.get_by_role("img", name="etl: 5 jobs")
    for name in ("extract", "transform", "approve", "check", "load"):
        expect(picture.locator("text.name", has_text=name)).to_have_count(1)
    run = dashboard_site.ask("POST", "/runs", {"name": "etl", "input": {"day": "monday"}})["run"]

    last = page.get_by_role("region", name="Its last runs").get_by_role("row")
    mine = last.filter(has=page.get_by_role("link", name=f"#{run}"))
    expect(mine).to_contain_text("running")
    dashboard_site.ask("POST", f"/runs/{run}/signals", {"name": "approval", "payload": True})
    expect(mine).to_contain_text("succeeded")
    expect(row(page, "Its tasks", "load")).to_contain_text("100%")
    expect(row(page, "Its tasks", "load").locator("td").nth(2)).not_to_have_text("0")
    assert accessibility_violations(page) == []


def test_flow_page_start_form_keeps_numbers_exact(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/flows/echo")
    page.get_by_role("button", name="Start a run").click()
    form = page.get_by_role("dialog", name="Start echo")
    expect(form).to_contain_text("value: Any = None")
    form.get_by_label("Input").fill('{"value": 9007199254740993}')
    form.get_by_label("Key").fill("started by hand")
    form.get_by_role("button", name="start").click()

    expect(page).to_have_url(re.compile(rf"{dashboard_site.url}/runs/[0-9]+$"))
    run = dashboard_site.ask("GET", f"/runs/{page.url.rpartition('/')[2]}")
    assert run["input"] == {"value": 9007199254740993}
    assert run["key"] == "started by hand"


def test_flow_page_invalid_input_is_refused_and_kept_in_form(admin_tab: Tab) -> None:
    admin_tab.expected = ["422"]
    page = admin_tab.goto("/flows/greet")
    page.get_by_role("button", name="Start a run").click()
    form = page.get_by_role("dialog", name="Start greet")
    given = form.get_by_label("Input")
    expect(given).to_have_value('{\n  "name": ""\n}')
    expect(form).to_contain_text("name: str must be given")
    assert accessibility_violations(page) == []
    given.fill("{name: 1}")
    form.get_by_role("button", name="start").click()
    expect(page.get_by_text("is not valid JSON")).to_be_visible()
    given.fill('{"nom": "x"}')
    form.get_by_role("button", name="start").click()
    expect(page.get_by_text(re.compile("has no parameter|nom"))).to_be_visible()
    expect(given).to_have_value('{"nom": "x"}')


def test_flow_page_viewer_cannot_start_runs(open_tab: Callable[..., Tab]) -> None:
    page = open_tab("viewer").goto("/flows/greet")
    expect(page.get_by_role("heading", name="greet")).to_be_visible()
    expect(page.get_by_role("button", name="Start a run")).to_have_count(0)
    expect(page.locator("[data-act]").filter(has_text="start")).to_have_count(0)


def test_flow_page_task_shows_statistics_and_declaration(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    insert_minute_stats(dashboard_site.dsn, "default", "flaky", 2, succeeded=4, took=6, longest=3)
    run = dashboard_site.start("flaky")
    page = admin_tab.goto("/flows/flaky?range=1h")

    expect(page.get_by_role("img", name="Time an attempt took, the last hour")).to_be_visible()
    expect(page.get_by_role("region", name="As it is written")).to_contain_text("attempts")
    last = page.get_by_role("region", name="Its last runs").get_by_role("row")
    mine = last.filter(has=page.get_by_role("link", name=f"#{run}"))
    expect(mine).to_contain_text("succeeded")
    expect(mine).to_contain_text("3")


def test_flow_page_unknown_name_is_not_found(admin_tab: Tab) -> None:
    admin_tab.expected = ["404"]
    page = admin_tab.goto("/flows/never-heard-of")
    expect(page.get_by_text("there is no flow or task")).to_be_visible()
