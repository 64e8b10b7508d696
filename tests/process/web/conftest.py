"""Fixtures of `support.site_fixtures`."""

from __future__ import annotations

from support.site_fixtures import page_client, site_app, site_client, site_dsn

__all__ = ["page_client", "site_app", "site_client", "site_dsn"]
