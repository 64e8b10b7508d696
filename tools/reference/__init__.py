"""Reference pages of the documentation, generated from the code.

    python -m tools.reference              # writes them, and refreshes included code on other pages

They list signatures and docstrings, commands and options, events, tables with the comments of the
migrations, and the operations of the HTTP API. Every public name gets an entry; a table or an event without
a description is an error. Tests compare the pages with the code.
"""

from __future__ import annotations

from pathlib import Path

from . import api, cli, events, http, schema, snippets

__all__ = ["PLACE", "ROOT", "pages", "snippets"]

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Return every generated page by its name below docs/reference."""
    return {
        **api.pages(),
        "cli.md": cli.page(),
        "events.md": events.page(),
        "http.md": http.page(),
        "schema.md": schema.page(ROOT / "src" / "rota" / "store"),
    }
