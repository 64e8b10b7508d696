"""Accessibility of a page, checked by axe-core."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def accessibility_violations(page: Page, *rules: str) -> list[tuple[str, list[str]]]:
    """Return the serious violations and their elements; of the given rules, or of all."""
    options = {"runOnly": list(rules)} if rules else None
    return [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in Axe().run(page, options=options).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]
