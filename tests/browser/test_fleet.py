"""Workers, alerts and the audit log in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest
from playwright.sync_api import Locator, Page, expect

from support.accessibility import accessibility_violations
from support.browser_tabs import DashboardSite, Tab
from support.other_instance import OtherInstance
from support.places import SUPPORT
from support.server_process import ServerProcess


@pytest.fixture
def other_instance(dashboard_site: DashboardSite) -> Iterator[OtherInstance]:
    with OtherInstance(dashboard_site.dsn) as neighbour:
        yield neighbour


# Workers


def test_workers_page_drained_worker_stops_and_is_audited(
    admin_tab: Tab, dashboard_site: DashboardSite, tmp_path: Path
) -> None:
    words = ["rota", "worker", "example_app:app", "-q", "elsewhere", "--health-port", "{port}"]
    names = {
        "PYTHONPATH": str(SUPPORT / "dashboard_apps"),
        "ROTA_VERSION": "2026.2-next",
        "ROTA_HEARTBEAT_INTERVAL": "1",
    }
    worker = ServerProcess(words, dashboard_site.dsn, tmp_path / "log", **names)
    try:
        worker.up()
        page = admin_tab.goto("/workers")
        expect(page.get_by_text("versions run side by side")).to_be_visible()
        line = page.get_by_role("row").filter(has_text="2026.2-next")
        expect(line).to_contain_text("elsewhere")
        expect(line).to_contain_text("active")
        others = page.get_by_role("region", name="Live workers").locator("tbody tr")
        many = others.count()
        line.get_by_role("button", name="drain").click()
        expect(page.get_by_role("dialog")).to_contain_text("takes no more jobs")
        page.get_by_role("dialog").get_by_role("button", name="drain").click()
        assert worker.process.wait(60) == 0, worker.said
        gone = page.get_by_role("region", name="Stopped and dead workers").get_by_role("row")
        expect(gone.filter(has_text="2026.2-next")).to_contain_text("stopped")
        expect(others).to_have_count(many - 1)
        expect(page.get_by_text("versions run side by side")).to_have_count(0)
    finally:
        worker.close()
    [deed] = dashboard_site.ask("GET", "/audit?action=drain%20worker&limit=1")["entries"]
    assert deed["operator"].startswith("admin (token ")


def test_workers_page_viewer_sees_services_but_no_drain_button(
    open_tab: Callable[..., Tab],
) -> None:
    page = open_tab("viewer").goto("/workers")
    line = page.get_by_role("row").filter(has_text="default")
    expect(line).to_contain_text("runs trouble")
    expect(line).to_contain_text("runs watch")
    expect(line.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"^\d+ of \d+$"))
    expect(page.locator("main").get_by_role("button", name="drain")).to_have_count(0)


# Alerts


def raise_alert(neighbour: OtherInstance, kind: str, subject: str = "this") -> None:
    neighbour.sql(
        "insert into rota.alerts (kind, subject, message, host, pid, deliver_at)"
        " values (%s, %s, %s, 'web-1', 7, null)",
        kind,
        subject,
        f"{kind} is so",
    )


def alert(page: Page, kind: str) -> Locator:
    return page.locator("article").filter(has_text=kind)


def test_alerts_page_alert_is_acknowledged_and_closed(
    admin_tab: Tab, dashboard_site: DashboardSite, other_instance: OtherInstance
) -> None:
    kind = f"kind {uuid4()}"
    page = admin_tab.goto("/alerts")
    raise_alert(other_instance, kind, 'a "subject" <b>')
    raise_alert(other_instance, kind, "another")
    here = alert(page, 'a "subject" <b>')
    expect(here).to_contain_text("open")
    expect(page.get_by_role("link", name="Alerts")).to_contain_text(re.compile(r"\d"))
    here.get_by_label("Duration").select_option("8 hours")
    here.get_by_role("button", name="acknowledge").click()
    expect(here).to_contain_text("admin")
    expect(here).to_contain_text("in 7 h 59 min")
    expect(alert(page, "another")).to_contain_text(
        "open"
    )  # only one of the two alerts was acknowledged
    assert accessibility_violations(page) == []
    here.get_by_role("button", name="close").click()
    page.get_by_role("dialog").get_by_role("button", name="close").click()
    expect(here).to_have_count(0)
    past = page.get_by_role("region", name="Closed alerts").get_by_role("row")
    expect(past.filter(has_text=kind)).to_contain_text("admin (token ")
    expect(alert(page, "another")).to_be_visible()
    deeds = dashboard_site.ask(
        "GET", f"/audit?subject={quote(kind)}%3A%20a%20%22subject%22%20%3Cb%3E"
    )
    assert [each["action"] for each in deeds["entries"]] == ["close alert", "acknowledge alert"]
    dashboard_site.ask("POST", "/alerts/dismiss", {"kind": kind})


# Audit


def test_audit_page_filters_by_operator_and_object(
    admin_tab: Tab, other_instance: OtherInstance
) -> None:
    mark = str(uuid4())
    other_instance.sql(
        "insert into rota.audit (operator, action, subject, detail)"
        " select case when n %% 2 = 0 then 'ada ' else 'bob ' end || %s, 'cancel run', n::text,"
        '        \'{"task": "<script>alert(1)</script>"}\''
        "   from generate_series(1, 120) as n",
        mark,
    )
    page = admin_tab.goto("/audit")
    lines = page.get_by_role("region", name="Operator actions").locator("tbody tr")
    lines.get_by_role("link", name=f"ada {mark}").first.click()
    expect(page).to_have_url(re.compile("operator=ada"))
    expect(lines.first).to_contain_text("task <script>alert(1)</script>")
    expect(lines).to_have_count(50)
    page.get_by_role("link", name="older").click()
    expect(lines).to_have_count(10)
    expect(page.get_by_text("bob")).to_have_count(0)
    page.get_by_label("Object", exact=True).fill("4")
    page.get_by_role("button", name="find").click()
    expect(lines).to_have_count(1)
    lines.get_by_role("link", name="show").click()
    expect(page).to_have_url(re.compile("/runs/4$"))
    admin_tab.expected = ["404"]
