"""Environment of the browser tests: one dashboard and one worker, as real processes shared by all tests,
and a browser with recorded console errors.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect

SWITCHES = [
    "--no-sandbox",  # required in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DESKTOP = (1360, 900)
PHONE = (390, 844)
SHOTS = Path("/tmp/shots")

expect.set_options(timeout=60_000)


class ApiError(Exception):
    """Error answer of the API."""


@dataclass(frozen=True)
class DashboardSite:
    """The site, and the API that tests use as an admin to change it."""

    url: str
    passes: dict[str, str]
    dsn: str

    def ask(self, method: str, path: str, body: Any = None, who: str = "admin") -> Any:
        """Send a request to the API; return its JSON."""
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            None if method == "GET" else json.dumps(body or {}).encode(),
            {"Authorization": f"Bearer {self.passes[who]}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise ApiError(f"{error.code}: {error.read().decode()}") from None

    def start(self, task: str, **input: Any) -> str:
        """Start a run; return its id."""
        run: str = self.ask("POST", "/runs", {"name": task, "input": input})["run"]
        return run

    def state(self, run: str) -> str:
        state: str = self.ask("GET", f"/runs/{run}")["state"]
        return state


@dataclass
class Tab:
    """Page of the dashboard in a browser. `goto("/runs")` opens a path."""

    page: Page
    floor: DashboardSite
    expected: list[str] = field(default_factory=list)
    """Allowed console messages: the browser also reports refusals that a test provokes."""
    said: list[str] = field(default_factory=list)

    def goto(self, path: str) -> Page:
        self.page.goto(self.floor.url + path)
        return self.page

    @property
    def faults(self) -> list[str]:
        return [each for each in self.said if not any(allowed in each for allowed in self.expected)]


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def launch(playwright: Playwright) -> Browser:
    path = chromium()
    assert path is not None
    return playwright.chromium.launch(executable_path=path, args=SWITCHES)


@contextmanager
def open_browser_tab(
    browser: Browser, floor: DashboardSite, who: str | None = "admin", **how: Any
) -> Iterator[Tab]:
    """Open a fresh window, signed in as a role; with None, not signed in."""
    how.setdefault("viewport", {"width": DESKTOP[0], "height": DESKTOP[1]})
    context: BrowserContext = browser.new_context(**how)
    if who is not None:
        context.add_cookies(
            [{"name": "rota_token", "value": floor.passes[who], "url": floor.url, "httpOnly": True}]
        )
    made = Tab(context.new_page(), floor)
    made.page.on(
        "console",
        lambda message: (
            made.said.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    made.page.on("pageerror", lambda error: made.said.append(str(error)))
    try:
        yield made
    finally:
        context.close()


def save_screenshots(
    browser: Browser, floor: DashboardSite, path: str, name: str, who: str = "admin"
) -> None:
    """Save screenshots of a page: desktop and phone, light and dark."""
    SHOTS.mkdir(exist_ok=True)
    for scheme in ("light", "dark"):
        for size, (width, height) in (("desktop", DESKTOP), ("phone", PHONE)):
            viewport = {"width": width, "height": height}
            with open_browser_tab(
                browser, floor, who, viewport=viewport, color_scheme=scheme
            ) as made:
                made.goto(path).wait_for_timeout(700)
                file = SHOTS / f"{name}-{size}-{scheme}.png"
                made.page.screenshot(path=file, full_page=True)
