"""Fixtures: the dashboard in a real browser, with a real worker behind it.

All browser tests share the processes, the database and the browser. Each test creates its own data under
its own names. Any error or warning on the browser's console fails the test.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from rota import Rota
from rota.app.tokens import create_access_token
from rota.model.access import Role
from rota.testing.server import DatabaseServer
from support.browser_tabs import DashboardSite, Tab, chromium, launch, open_browser_tab
from support.places import SUPPORT
from support.server_process import ServerProcess

APPS = SUPPORT / "dashboard_apps"


@pytest.fixture(scope="session")
def dashboard_dsn(rota_server: DatabaseServer) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def dashboard_site(dashboard_dsn: str) -> Iterator[DashboardSite]:
    """Site of an app with a running worker, which serves all queues but one."""
    # In a thread, because Playwright's sync API keeps an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        passes = thread.submit(asyncio.run, _create_tokens(dashboard_dsn)).result()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        log = Path(directory, "log")
        words = {"PYTHONPATH": str(APPS), "ROTA_HEARTBEAT_INTERVAL": "1"}
        worker = ServerProcess(
            ["rota", "worker", "example_app:app", "-q", "default", "--health-port", "{port}"],
            dashboard_dsn,
            log,
            **words,
        )
        stack.callback(worker.close)
        pages = ServerProcess(
            ["rota", "dashboard", "example_app:app", "-p", "{port}"], dashboard_dsn, log, **words
        )
        stack.callback(pages.close)
        for each in (worker, pages):
            each.up()
        yield DashboardSite(f"http://127.0.0.1:{pages.port}", passes, dashboard_dsn)


async def _create_tokens(dsn: str) -> dict[str, str]:
    async with Rota(dsn) as app:
        return {
            role.text: (await create_access_token(app, role.text, role, timedelta(days=1), "test"))[
                0
            ].text
            for role in Role
        }


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("no Chromium here: apt install chromium")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def open_tab(browser: Browser, dashboard_site: DashboardSite) -> Iterator[Callable[..., Tab]]:
    """Open a window with a role: `look_as("viewer")`, `look_as("admin", color_scheme="dark")`."""
    with ExitStack() as stack:
        made: list[Tab] = []

        def look(who: str | None = "admin", **how: Any) -> Tab:
            made.append(stack.enter_context(open_browser_tab(browser, dashboard_site, who, **how)))
            return made[-1]

        yield look
        faults = [fault for each in made for fault in each.faults]
    assert faults == []


@pytest.fixture
def admin_tab(open_tab: Callable[..., Tab]) -> Tab:
    """Window of an admin."""
    return open_tab("admin")
