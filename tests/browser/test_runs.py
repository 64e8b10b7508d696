"""The page of runs: filters in the address, pagination, live updates, and bulk actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from support.browser_tabs import PHONE, DashboardSite, Tab


@pytest.fixture
def mark() -> str:
    """Return a word that only this test uses."""
    return f"w{uuid4().hex[:10]}"


def start(floor: DashboardSite, count: int, mark: str) -> list[str]:
    """Start runs that no worker serves: they stay queued."""
    with psycopg.connect(floor.dsn, autocommit=True) as connection:
        found = connection.execute(
            "select started.run::text"
            "  from generate_series(0, %s) as n, lateral rota.start("
            "       'unserved', queue => 'nobody', key => %s || '-' || n) as started order by n",
            (count - 1, mark),
        )
        return [run for [run] in found]


def toasts(page: Page) -> Any:
    return page.locator(".toast")


def row(page: Page, run: str) -> Any:
    return page.locator(f'tr[data-key="{run}"]')


def rows(page: Page) -> list[str]:
    return [
        each.get_attribute("data-key") or "" for each in page.locator("tbody tr[data-key]").all()
    ]


def test_runs_page_new_and_changed_runs_appear_live(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    page = admin_tab.goto(f"/runs?find={mark}")
    expect(page.get_by_text("No run matches")).to_be_visible()
    [run] = start(dashboard_site, 1, mark)
    expect(row(page, run)).to_contain_text("queued")
    page.get_by_label(f"Select run {run}").check()
    dashboard_site.ask("POST", f"/runs/{run}/cancel")
    expect(row(page, run)).to_contain_text("cancelled")
    # The selection survives a live update.
    expect(page.get_by_label(f"Select run {run}")).to_be_checked()


def test_runs_page_filters_are_in_the_address(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    one, two = start(dashboard_site, 2, mark)
    dashboard_site.ask("POST", f"/runs/{two}/cancel")
    page = admin_tab.goto("/runs")
    page.get_by_label("Text", exact=True).fill(mark)
    page.get_by_role("button", name="find").click()
    expect(page).to_have_url(re.compile(rf"find={mark}"))
    assert rows(page) == [two, one]
    page.get_by_role("navigation", name="State").get_by_role("link", name="cancelled").click()
    expect(page).to_have_url(re.compile(r"state=cancelled"))
    assert rows(page) == [two]
    # Another filter keeps the state.
    page.get_by_label("Queue").fill("elsewhere")
    page.get_by_role("button", name="find").click()
    expect(page.get_by_text("No run matches")).to_be_visible()
    admin_tab.goto(f"/runs?queue=nobody&name=unserved&find={mark}&state=queued")
    assert rows(page) == [one]
    admin_tab.goto(f"/runs?key={mark}-0")
    assert rows(page) == [one]
    admin_tab.goto(f"/runs?find={mark}&until=2020-01-01T00:00")
    assert rows(page) == []


def test_runs_page_search_by_id_opens_the_run(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    [run] = start(dashboard_site, 1, mark)
    page = admin_tab.goto("/")
    page.get_by_role("searchbox", name="Find a run").fill(run)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{dashboard_site.url}/runs/{run}")
    admin_tab.expected = ["404"]
    admin_tab.goto("/runs?id=999999999999")
    expect(page.get_by_text("there is no run 999999999999")).to_be_visible()


def test_runs_page_pagination_neither_skips_nor_repeats(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    runs = start(dashboard_site, 120, mark)[::-1]
    page = admin_tab.goto(f"/runs?find={mark}")
    seen = [rows(page)]
    for _ in range(2):
        page.get_by_role("link", name="older").click()
        expect(row(page, seen[-1][-1])).to_have_count(0)
        seen.append(rows(page))
    assert [run for each in seen for run in each] == runs
    expect(page.get_by_role("link", name="older")).to_have_count(0)
    page.get_by_role("link", name="newer").click()
    expect(row(page, seen[1][0])).to_be_visible()
    assert rows(page) == seen[1]
    page.get_by_role("link", name="newer").click()
    expect(row(page, seen[0][0])).to_be_visible()
    assert rows(page) == seen[0]
    expect(page.get_by_role("link", name="newer")).to_have_count(0)


def test_runs_page_selected_runs_are_cancelled_and_retried(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    one, two, three = start(dashboard_site, 3, mark)
    page = admin_tab.goto(f"/runs?find={mark}")
    expect(page.get_by_role("button", name="cancel")).to_be_disabled()
    for run in (one, three):
        page.get_by_label(f"Select run {run}").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("button", name="cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancel 2 runs?")
    dialog.get_by_role("button", name="no").click()
    assert [dashboard_site.state(run) for run in (one, two, three)] == ["queued"] * 3
    page.get_by_role("button", name="cancel").click()
    dialog.get_by_role("button", name="cancel").click()
    expect(toasts(page)).to_have_text("2 cancelled")
    expect(row(page, one)).to_contain_text("cancelled")
    assert [dashboard_site.state(run) for run in (one, two, three)] == [
        "cancelled",
        "queued",
        "cancelled",
    ]
    page.get_by_label("select this page").check()
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.get_by_role("button", name="retry").click()
    dialog.get_by_role("button", name="retry").click()
    # One of the three was already queued.
    expect(toasts(page).last).to_have_text("2 queued for a retry")
    assert [dashboard_site.state(run) for run in (one, two, three)] == ["queued"] * 3


def test_runs_page_bulk_cancel_affects_only_counted_matches(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    runs = start(dashboard_site, 60, mark)
    [other] = start(dashboard_site, 1, f"x{mark[1:]}")
    page = admin_tab.goto(f"/runs?find={mark}")
    page.get_by_role("button", name="everything that matches").click()
    page.get_by_role("button", name="cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Cancel 60 runs with find {mark}?")
    # Runs that start while the dialog is open are not affected.
    late = dashboard_site.ask("POST", "/runs", {"name": "unserved", "key": f"{mark}-late"})["run"]
    dialog.get_by_role("button", name="cancel").click()
    expect(toasts(page)).to_have_text("60 cancelled", timeout=30_000)
    assert {dashboard_site.state(run) for run in runs} == {"cancelled"}
    assert [dashboard_site.state(other), dashboard_site.state(late)] == ["queued", "queued"]
    noted = dashboard_site.ask("GET", f"/audit?subject={runs[0]}")["entries"]
    assert [(each["action"], each["operator"].split()[0]) for each in noted] == [
        ("cancel run", "admin")
    ]


def test_runs_page_bulk_cancel_can_be_stopped(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    start(dashboard_site, 3, mark)
    page = admin_tab.goto(f"/runs?find={mark}")
    asked: list[str] = []

    def portion(route: Any) -> None:
        asked.append(route.request.post_data)
        route.fulfill(json={"done": 1, "skipped": 0, "next": "MQ"})
        if len(asked) == 3:
            page.keyboard.press("Escape")

    page.route(re.compile("/api/v1/runs/cancel$"), portion)
    page.get_by_role("button", name="everything that matches").click()
    page.get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="cancel").click()
    expect(toasts(page)).to_have_text(re.compile(r"stopped: \d+ cancelled"))
    many = len(asked)
    assert many >= 3
    page.wait_for_timeout(200)
    assert len(asked) == many


def test_runs_page_failed_bulk_cancel_shows_the_error(
    admin_tab: Tab, dashboard_site: DashboardSite, mark: str
) -> None:
    start(dashboard_site, 1, mark)
    admin_tab.expected = ["503"]
    page = admin_tab.goto(f"/runs?find={mark}")
    page.route(
        re.compile("/api/v1/runs/cancel$"),
        lambda route: route.fulfill(
            status=503, json={"error": {"code": "x", "message": "the database is away"}}
        ),
    )
    page.get_by_label("select this page").check()
    page.get_by_role("button", name="cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="cancel").click()
    expect(toasts(page)).to_have_text("0 cancelled, then failed: the database is away")


def test_runs_page_viewer_has_no_actions_and_no_payload_search(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite, mark: str
) -> None:
    secret = dashboard_site.start("echo", value=mark)
    page = open_tab("viewer").goto("/runs")
    expect(row(page, secret)).to_be_visible()
    expect(page.get_by_role("checkbox")).to_have_count(0)
    expect(page.get_by_role("button", name="cancel")).to_have_count(0)
    page = open_tab("viewer").goto(f"/runs?find={mark}")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page = open_tab("operator").goto(f"/runs?find={mark}")
    expect(row(page, secret)).to_be_visible()


@pytest.mark.parametrize("path", ["/runs?state=queued", "/runs?find=no-such-thing&key=x"])
def test_runs_page_has_no_accessibility_violations(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite, path: str
) -> None:
    start(dashboard_site, 1, uuid4().hex)
    viewport = {"width": PHONE[0], "height": PHONE[1]}
    for how in ({"color_scheme": "dark"}, {"viewport": viewport}):
        page = open_tab("admin", **how).goto(path)
        expect(page.get_by_role("navigation", name="Main")).to_be_visible()
        found = Axe().run(page).response["violations"]
        assert [each for each in found if each["impact"] in ("serious", "critical")] == []
        if "viewport" in how:
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
