"""Fixtures of `support.dashboard_fixtures`."""

from __future__ import annotations

from support.dashboard_fixtures import admin_tab, browser, dashboard_dsn, dashboard_site, open_tab

__all__ = ["admin_tab", "browser", "dashboard_dsn", "dashboard_site", "open_tab"]
