"""Locks, semaphores, leaders, services, rate limits and `once` calls in a browser: holders, and release by
force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from support.accessibility import accessibility_violations
from support.browser_tabs import PHONE, DashboardSite, Tab
from support.other_instance import OtherInstance


@pytest.fixture
def other_instance(dashboard_site: DashboardSite) -> Iterator[OtherInstance]:
    with OtherInstance(dashboard_site.dsn) as neighbour:
        yield neighbour


def row(page: Page, region: str, name: str) -> Locator:
    return page.get_by_role("region", name=region).get_by_role("row").filter(has_text=name)


def test_coordination_page_lock_release_by_force_notifies_holder(
    admin_tab: Tab,
    open_tab: Callable[..., Tab],
    dashboard_site: DashboardSite,
    other_instance: OtherInstance,
) -> None:
    name = f"invoices/{uuid4()} ü 100%"
    lock = other_instance.app.lock(name, ttl=3, label="billing")
    other_instance.do(lock.acquire())
    page = admin_tab.goto(f"/coordination?lock={name[:20]}")
    line = row(page, "Locks", name)
    expect(line).to_contain_text("held")
    expect(line).to_contain_text("billing")
    expect(line).to_contain_text(str(lock.token))
    viewer = open_tab("viewer").goto(f"/coordination?lock={name[:20]}")
    expect(row(viewer, "Locks", name)).to_contain_text("held")
    expect(row(viewer, "Locks", name).get_by_role("button")).to_have_count(0)
    line.get_by_role("button", name="release").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"token {lock.token}")
    page.get_by_role("dialog").get_by_role("button", name="release").click()
    expect(line).to_have_count(0)
    other_instance.do(asyncio.wait_for(lock.lost.wait(), 60))
    assert not lock.held
    [deed] = [
        each
        for each in dashboard_site.ask("GET", "/audit?action=release%20lock")["entries"]
        if each["subject"] == name
    ]
    assert deed["operator"].startswith("admin (token ")


def test_coordination_page_permit_release_keeps_the_other_permit(
    admin_tab: Tab, other_instance: OtherInstance
) -> None:
    name = f"gpu {uuid4()}"
    permits = [other_instance.app.semaphore(name, 2, ttl=3) for _ in range(2)]
    for each in permits:
        other_instance.do(each.acquire())
    page = admin_tab.goto(f"/coordination?lock={name}")
    lines = page.get_by_role("region", name="Semaphores").locator("tbody tr")
    expect(lines).to_have_count(2)
    expect(lines.first).to_contain_text("2 held")
    lines.nth(1).get_by_role("button", name="release").click()
    page.get_by_role("dialog").get_by_role("button", name="release").click()
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text("1 held")
    lost = next(each for each in permits if each.permit == 2)
    other_instance.do(asyncio.wait_for(lost.lost.wait(), 60))
    [kept] = [each for each in permits if each is not lost]
    assert kept.held
    other_instance.do(kept.release())


def test_coordination_page_awaited_lock_shows_waiting_time(
    admin_tab: Tab, other_instance: OtherInstance
) -> None:
    name = f"busy {uuid4()}"
    lock = other_instance.app.lock(name)
    other_instance.do(lock.acquire())
    page = admin_tab.goto(f"/coordination?lock={name}")
    expect(row(page, "Locks", name).locator("td").nth(7)).to_have_text("–")

    async def wanting() -> None:
        task = asyncio.create_task(other_instance.app.lock(name, wait=30).acquire())
        other_instance.waiting = task  # type: ignore[attr-defined]

    other_instance.do(wanting())
    expect(row(page, "Locks", name).locator("td").nth(7).locator("time")).to_be_visible()
    other_instance.do(lock.release())

    async def got() -> None:
        taken = await other_instance.waiting  # type: ignore[attr-defined]
        await taken.release()

    other_instance.do(got())


def test_coordination_page_shows_leaders_and_services(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite, other_instance: OtherInstance
) -> None:
    leader = other_instance.app.leader(f"housekeeping {uuid4()}")
    term = leader.term()
    other_instance.do(term.__aenter__())
    page = open_tab("operator").goto("/coordination")
    line = row(page, "Leaders", leader.name)
    expect(line).to_contain_text("leading")
    other_instance.do(term.__aexit__(None, None, None))
    expect(line).to_contain_text("vacant")
    expect(row(page, "Services", "watch")).to_contain_text("succeeded")
    trouble = row(page, "Services", "trouble")
    expect(trouble).to_contain_text("failing")
    expect(trouble).to_contain_text("ValueError: a planted s3cret")
    viewer = open_tab("viewer").goto("/coordination")
    expect(row(viewer, "Services", "trouble")).to_contain_text("ValueError")
    assert "s3cret" not in viewer.content()


def test_coordination_page_shows_rate_limits_and_once_calls(
    open_tab: Callable[..., Tab], other_instance: OtherInstance
) -> None:
    name = f"feed-{uuid4()}"
    for _ in range(3):
        other_instance.do(other_instance.app.rate_limit(name, 1, per=60, burst=5).take())
    key = f"invoice:{uuid4()}"
    other_instance.do(other_instance.app.once(key, lambda: {"charged": "s3cret 42"}))
    page = open_tab("operator").goto(f"/coordination?once={key[:20]}")
    rate = row(page, "Rate limits", name)
    expect(rate).to_contain_text("1 min")
    expect(rate.locator("td").nth(2)).to_have_text("3")
    once = row(page, "Calls made once", key)
    expect(once).to_contain_text("finished")
    expect(once).to_contain_text("s3cret 42")
    viewer = open_tab("viewer").goto(f"/coordination?once={key[:20]}")
    expect(row(viewer, "Calls made once", key)).to_contain_text("finished")
    assert "s3cret" not in viewer.content()


def test_pages_on_phone_only_wide_tables_scroll(
    open_tab: Callable[..., Tab], dashboard_site: DashboardSite, other_instance: OtherInstance
) -> None:
    lock = other_instance.app.lock(
        f"{'a-long-name-' * 12}{uuid4()}", label="a label that is long, too"
    )
    other_instance.do(lock.acquire())
    name = f"{'long-' * 30}{uuid4()}"
    dashboard_site.ask("POST", "/schedules", {"name": name, "task": "gate", "every": 3600})
    narrow = {"width": PHONE[0], "height": PHONE[1]}
    tab = open_tab("admin", viewport=narrow, color_scheme="dark")
    for path in ("/coordination", "/workers", "/schedules", f"/schedules/{name}", "/audit"):
        page = tab.goto(path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE[0], path
    page = tab.goto("/coordination")
    assert accessibility_violations(page) == []
    table = page.get_by_role("region", name="Locks")
    assert table.evaluate("place => place.scrollWidth > place.clientWidth")
    release = row(page, "Locks", lock.name).get_by_role("button", name="release")
    release.scroll_into_view_if_needed()
    expect(release).to_be_in_viewport()
    other_instance.do(lock.release())
