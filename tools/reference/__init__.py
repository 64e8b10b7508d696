"""The reference pages of the docs, made from what they are about.

    python -m tools.reference              # rewrites them, and the code on other pages; tests compare

Signatures and docstrings, commands and their options, events, tables with the comments of the migrations,
and the operations of the HTTP API: what is public has an entry because it is there, and whoever adds a
table or an event without a word about it is told so here.
"""

from __future__ import annotations

from pathlib import Path

from . import api, cli, events, http, schema, snippets

__all__ = ["PLACE", "ROOT", "pages", "snippets"]

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "reference"


def pages() -> dict[str, str]:
    """Every page that is made, by its name below docs/reference."""
    return {
        **api.pages(),
        "cli.md": cli.page(),
        "events.md": events.page(),
        "http.md": http.page(),
        "schema.md": schema.page(ROOT / "src" / "rota" / "store"),
    }
