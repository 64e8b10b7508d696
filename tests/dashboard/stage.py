"""Where browser tests take place: one dashboard and one worker, real processes, for all of them; and a
browser, which says what went wrong in a page."""

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
    "--no-sandbox",  # in a container there is no other way
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

expect.set_options(timeout=10_000)


class Refusal(Exception):
    """What the API said no to."""


@dataclass(frozen=True)
class Floor:
    """The site, and what tests do to it behind its back: over the API, as an administrator."""

    url: str
    passes: dict[str, str]
    dsn: str

    def ask(self, method: str, path: str, body: Any = None, who: str = "admin") -> Any:
        """Of the API; answers what it says."""
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
            raise Refusal(f"{error.code}: {error.read().decode()}") from None

    def start(self, task: str, **input: Any) -> str:
        """Start a run; answers its number."""
        run: str = self.ask("POST", "/runs", {"name": task, "input": input})["run"]
        return run

    def state(self, run: str) -> str:
        state: str = self.ask("GET", f"/runs/{run}")["state"]
        return state


@dataclass
class Tab:
    """A page of the dashboard in a browser, as somebody sees it. `goto("/runs")` goes there."""

    page: Page
    floor: Floor
    expected: list[str] = field(default_factory=list)
    """What the console may say: a refusal that a test provokes is told there, too."""
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
def tab(browser: Browser, floor: Floor, who: str | None = "admin", **how: Any) -> Iterator[Tab]:
    """A fresh window of somebody who has come in; with None, of a stranger."""
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


def shot(browser: Browser, floor: Floor, path: str, name: str, who: str = "admin") -> None:
    """Pictures of a page, for people to look at: wide and narrow, by day and by night."""
    SHOTS.mkdir(exist_ok=True)
    for scheme in ("light", "dark"):
        for size, (width, height) in (("desktop", DESKTOP), ("phone", PHONE)):
            viewport = {"width": width, "height": height}
            with tab(browser, floor, who, viewport=viewport, color_scheme=scheme) as made:
                made.goto(path).wait_for_timeout(700)
                file = SHOTS / f"{name}-{size}-{scheme}.png"
                made.page.screenshot(path=file, full_page=True)
