"""Queues in a browser: queued jobs, arrival and completion rates, and workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Locator, Page, expect

from support.accessibility import accessibility_violations
from support.browser_tabs import DashboardSite, Tab
from support.minute_stats import insert_minute_stats, insert_queue_sample


def start(floor: DashboardSite, queue: str, many: int = 1) -> list[str]:
    body: dict[str, Any] = {"name": "greet", "queue": queue, "input": {"name": "x"}}
    return [floor.ask("POST", "/runs", body)["run"] for _ in range(many)]


def line(page: Page, queue: str) -> Locator:
    named = page.get_by_role("link", name=queue, exact=True)
    return (
        page.get_by_role("region", name="Queues", exact=True).get_by_role("row").filter(has=named)
    )


def test_queues_page_unserved_queue_shows_worker_command(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    page = admin_tab.goto("/queues")
    first, *_ = start(dashboard_site, "q-unserved", 3)

    row = line(page, "q-unserved")
    expect(row).to_contain_text("3")
    expect(row).to_contain_text("none")
    stuck = page.get_by_role("region", name="Jobs no worker can run").get_by_role("row")
    mine = stuck.filter(has_text="q-unserved")
    expect(mine).to_contain_text("rota worker MODULE:APP -q q-unserved")
    expect(mine.get_by_role("link", name=f"#{first}")).to_be_visible()
    row.get_by_role("link", name="runs of q-unserved").click()
    expect(page).to_have_url(f"{dashboard_site.url}/runs?queue=q-unserved")


def test_queues_page_served_queue_shows_charts_and_worker(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    for _ in range(3):
        dashboard_site.start("echo", value=1)
    page = admin_tab.goto("/queues")
    row = line(page, "default")
    expect(row.get_by_role("img")).to_have_count(3)
    row.get_by_role("link", name="default", exact=True).click()

    expect(page).to_have_url(f"{dashboard_site.url}/queues/default")
    serving = page.get_by_role("region", name="Workers that serve it").locator("tbody tr")
    expect(serving).to_have_count(1)


def test_queue_page_shows_only_its_own_statistics(
    admin_tab: Tab, dashboard_site: DashboardSite
) -> None:
    queue = "q past/ü"
    insert_minute_stats(
        dashboard_site.dsn, queue, "a", 4, succeeded=7, failed=2, took=18, longest=5, waited=0.25
    )
    insert_minute_stats(dashboard_site.dsn, queue, "b", 4, succeeded=1)
    insert_queue_sample(dashboard_site.dsn, queue, 6, 12)
    insert_queue_sample(dashboard_site.dsn, queue, 5, 0)
    page = admin_tab.goto("/queues/q%20past%2F%C3%BC?range=1h")

    ended = page.get_by_role("img", name="Jobs ended a minute, the last hour")
    said = "succeeded 0 now, at most 8; failed 0 now, at most 2; other 0 now, at most 0"
    expect(ended).to_have_attribute("aria-label", f"Jobs ended a minute, the last hour: {said}")
    expect(page.get_by_role("img", name="Jobs queued")).to_have_attribute(
        "aria-label", "Jobs queued, the last hour: queued 0 now, at most 12"
    )
    expect(page.get_by_role("img", name="Time an attempt took")).to_have_attribute(
        "aria-label", re.compile(r"longest 5 s now, at most 5 s; mean 1\.8 s now")
    )
    # Each segment shows its figures on hover.
    titles = ended.locator("rect.look title").all_text_contents()
    assert len(titles) == 60
    assert [each for each in titles if "succeeded 8\nfailed 2" in each] != []
    expect(page.get_by_text("No worker serves this queue")).to_be_visible()
    assert accessibility_violations(page) == []
    # The address works for any queue name.
    page.get_by_role("link", name="24 h").click()
    expect(page).to_have_url(f"{dashboard_site.url}/queues/q%20past%2F%C3%BC?range=24h")


def test_queue_page_queue_is_paused_with_reason_and_resumed(
    admin_tab: Tab, dashboard_site: DashboardSite, open_tab: Callable[..., Tab]
) -> None:
    start(dashboard_site, "q-pause")
    page = admin_tab.goto("/queues/q-pause")
    page.get_by_role("button", name="Pause").click()
    form = page.get_by_role("dialog", name="Pause q-pause")
    form.get_by_label("Reason").fill("the printer burns")
    form.get_by_role("button", name="pause").click()
    expect(page.get_by_text("the printer burns")).to_be_visible()

    others = open_tab("viewer").goto("/queues/q-pause")
    expect(others.get_by_text("Running jobs finish")).to_be_visible()
    expect(others.get_by_text("the printer burns")).to_have_count(0)
    expect(others.get_by_role("button", name=re.compile("Pause|Resume"))).to_have_count(0)
    others.goto(f"{dashboard_site.url}/queues")
    expect(line(others, "q-pause")).to_contain_text("paused")

    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("the printer burns")).to_have_count(0)
    expect(line(others, "q-pause")).not_to_contain_text("paused")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_queue_page_unknown_queue_is_not_found(admin_tab: Tab) -> None:
    admin_tab.expected = ["404"]
    page = admin_tab.goto("/queues/never-heard-of")
    expect(page.get_by_text("there is no queue 'never-heard-of'")).to_be_visible()
