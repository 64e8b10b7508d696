"""Locks, semaphores, leaders, services, rate limits and `once` calls in a browser: holders, and release by
force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from .neighbour import Neighbour
from .stage import PHONE, Floor, Tab
from .usable import faults


@pytest.fixture
def neighbour(floor: Floor) -> Iterator[Neighbour]:
    with Neighbour(floor.dsn) as neighbour:
        yield neighbour


def row(page: Page, region: str, name: str) -> Locator:
    return page.get_by_role("region", name=region).get_by_role("row").filter(has_text=name)


def test_a_lock_is_taken_from_its_holder_who_hears_of_it(
    desk: Tab, look_as: Callable[..., Tab], floor: Floor, neighbour: Neighbour
) -> None:
    name = f"invoices/{uuid4()} ü 100%"
    lock = neighbour.app.lock(name, ttl=3, label="billing")
    neighbour.do(lock.acquire())
    page = desk.goto(f"/coordination?lock={name[:20]}")
    line = row(page, "Locks", name)
    expect(line).to_contain_text("held")
    expect(line).to_contain_text("billing")
    expect(line).to_contain_text(str(lock.token))
    viewer = look_as("viewer").goto(f"/coordination?lock={name[:20]}")
    expect(row(viewer, "Locks", name)).to_contain_text("held")
    expect(row(viewer, "Locks", name).get_by_role("button")).to_have_count(0)
    line.get_by_role("button", name="release").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"token {lock.token}")
    page.get_by_role("dialog").get_by_role("button", name="release").click()
    expect(line).to_have_count(0)
    neighbour.do(asyncio.wait_for(lock.lost.wait(), 60))
    assert not lock.held
    [deed] = [
        each
        for each in floor.ask("GET", "/audit?action=release%20lock")["entries"]
        if each["subject"] == name
    ]
    assert deed["operator"].startswith("admin (token ")


def test_one_permit_of_a_semaphore_is_released_and_the_other_is_not(
    desk: Tab, neighbour: Neighbour
) -> None:
    name = f"gpu {uuid4()}"
    permits = [neighbour.app.semaphore(name, 2, ttl=3) for _ in range(2)]
    for each in permits:
        neighbour.do(each.acquire())
    page = desk.goto(f"/coordination?lock={name}")
    lines = page.get_by_role("region", name="Semaphores").locator("tbody tr")
    expect(lines).to_have_count(2)
    expect(lines.first).to_contain_text("2 held")
    lines.nth(1).get_by_role("button", name="release").click()
    page.get_by_role("dialog").get_by_role("button", name="release").click()
    expect(lines).to_have_count(1)
    expect(lines.first).to_contain_text("1 held")
    lost = next(each for each in permits if each.permit == 2)
    neighbour.do(asyncio.wait_for(lost.lost.wait(), 60))
    [kept] = [each for each in permits if each is not lost]
    assert kept.held
    neighbour.do(kept.release())


def test_whoever_waits_for_a_lock_is_seen(desk: Tab, neighbour: Neighbour) -> None:
    name = f"busy {uuid4()}"
    lock = neighbour.app.lock(name)
    neighbour.do(lock.acquire())
    page = desk.goto(f"/coordination?lock={name}")
    expect(row(page, "Locks", name).locator("td").nth(7)).to_have_text("–")

    async def wanting() -> None:
        task = asyncio.create_task(neighbour.app.lock(name, wait=30).acquire())
        neighbour.waiting = task  # type: ignore[attr-defined]

    neighbour.do(wanting())
    expect(row(page, "Locks", name).locator("td").nth(7).locator("time")).to_be_visible()
    neighbour.do(lock.release())

    async def got() -> None:
        taken = await neighbour.waiting  # type: ignore[attr-defined]
        await taken.release()

    neighbour.do(got())


def test_who_leads_and_who_runs_what(
    look_as: Callable[..., Tab], floor: Floor, neighbour: Neighbour
) -> None:
    leader = neighbour.app.leader(f"housekeeping {uuid4()}")
    term = leader.term()
    neighbour.do(term.__aenter__())
    page = look_as("operator").goto("/coordination")
    line = row(page, "Leaders", leader.name)
    expect(line).to_contain_text("leading")
    neighbour.do(term.__aexit__(None, None, None))
    expect(line).to_contain_text("vacant")
    expect(row(page, "Services", "watch")).to_contain_text("succeeded")
    trouble = row(page, "Services", "trouble")
    expect(trouble).to_contain_text("failing")
    expect(trouble).to_contain_text("ValueError: a planted s3cret")
    viewer = look_as("viewer").goto("/coordination")
    expect(row(viewer, "Services", "trouble")).to_contain_text("ValueError")
    assert "s3cret" not in viewer.content()


def test_rates_and_calls_made_once(look_as: Callable[..., Tab], neighbour: Neighbour) -> None:
    name = f"feed-{uuid4()}"
    for _ in range(3):
        neighbour.do(neighbour.app.rate_limit(name, 1, per=60, burst=5).take())
    key = f"invoice:{uuid4()}"
    neighbour.do(neighbour.app.once(key, lambda: {"charged": "s3cret 42"}))
    page = look_as("operator").goto(f"/coordination?once={key[:20]}")
    rate = row(page, "Rate limits", name)
    expect(rate).to_contain_text("1 min")
    expect(rate.locator("td").nth(2)).to_have_text("3")
    once = row(page, "Calls made once", key)
    expect(once).to_contain_text("finished")
    expect(once).to_contain_text("s3cret 42")
    viewer = look_as("viewer").goto(f"/coordination?once={key[:20]}")
    expect(row(viewer, "Calls made once", key)).to_contain_text("finished")
    assert "s3cret" not in viewer.content()


def test_on_a_phone_wide_tables_are_moved_by_themselves_and_the_page_is_not(
    look_as: Callable[..., Tab], floor: Floor, neighbour: Neighbour
) -> None:
    lock = neighbour.app.lock(f"{'a-long-name-' * 12}{uuid4()}", label="a label that is long, too")
    neighbour.do(lock.acquire())
    name = f"{'long-' * 30}{uuid4()}"
    floor.ask("POST", "/schedules", {"name": name, "task": "gate", "every": 3600})
    narrow = {"width": PHONE[0], "height": PHONE[1]}
    tab = look_as("admin", viewport=narrow, color_scheme="dark")
    for path in ("/coordination", "/workers", "/schedules", f"/schedules/{name}", "/audit"):
        page = tab.goto(path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE[0], path
    page = tab.goto("/coordination")
    assert faults(page) == []
    table = page.get_by_role("region", name="Locks")
    assert table.evaluate("place => place.scrollWidth > place.clientWidth")
    release = row(page, "Locks", lock.name).get_by_role("button", name="release")
    release.scroll_into_view_if_needed()
    expect(release).to_be_in_viewport()
    neighbour.do(lock.release())
