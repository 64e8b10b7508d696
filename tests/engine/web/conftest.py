"""Fixtures: Rota's site, and clients for it, one for each role.

The tests share one database. Each test creates its own data under its own names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from rota import Rota
from rota.testing.server import DatabaseServer
from rota.web import tokens_auth
from rota.web.site import ALL_PARTS
from support.site_client import SiteClient, make_site_app


@pytest.fixture(scope="session")
def site_dsn(rota_server: DatabaseServer, way: Callable[[str], str]) -> Iterator[str]:
    with rota_server.database() as dsn:
        yield way(dsn)


@pytest.fixture
async def site_app(site_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rota]:
    """App with tasks, a flow and a schedule, without a worker."""
    # On a busy machine, the lookup of a token may take longer than a metrics scraper waits.
    monkeypatch.setattr(tokens_auth, "QUERY_TIMEOUT_SECONDS", 60.0)
    async with make_site_app(site_dsn) as app:
        yield app


@pytest.fixture
async def site_client(site_app: Rota) -> AsyncIterator[SiteClient]:
    async with SiteClient(site_app) as visitors:
        yield visitors


@pytest.fixture
async def page_client(site_app: Rota) -> AsyncIterator[SiteClient]:
    """Clients of a site that also serves pages."""
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        yield visitors
