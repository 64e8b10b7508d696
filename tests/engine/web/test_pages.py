"""Pages, requested without a browser: mount paths, read-only mode and live updates."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from rota import Rota
from rota.app.tokens import revoke_access_token
from rota.errors import DatabaseUnavailable, SettingsError
from rota.model.access import Caller
from rota.operations.declare import OperationContext
from rota.web import dashboard
from rota.web.dashboard import live as lively
from rota.web.dashboard import overview
from rota.web.dashboard.router import Page, PageView
from rota.web.responses import HttpError
from rota.web.site import ALL_PARTS, site
from support.live_stream import stream
from support.site_client import SiteClient

HTML = {"Accept": "text/html"}


async def test_site_dashboard_without_api_is_refused(site_app: Rota) -> None:
    with pytest.raises(SettingsError, match="the dashboard needs the API"):
        site(site_app, parts=("dashboard",))


async def test_page_without_token_redirects_to_login(page_client: SiteClient) -> None:
    answer = await page_client.ask("GET", "/runs?state=failed", who="nobody")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fruns%3Fstate%3Dfailed"
    assert (await page_client.ask("GET", "/api/v1/runs", who="nobody")).status_code == 401


# Read-only


async def test_read_only_site_refuses_actions_and_renders_none(site_app: Rota) -> None:
    async with SiteClient(site_app, parts=ALL_PARTS, read_only=True) as visitors:
        answer = await visitors.ask("POST", "/api/v1/runs", json={"name": "greet"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "read_only")
        answer = await visitors.ask("DELETE", "/api/v1/schedules/x", json={})
        assert answer.json()["error"]["code"] == "read_only"
        answer = await visitors.ask("POST", "/admin/drain", json={})
        assert answer.json()["error"]["code"] == "read_only"
        for path in ("/", "/schedules", "/workers", "/runs", "/coordination"):
            text = (await visitors.ask("GET", path)).text
            assert "This dashboard is read-only." in text
            assert not re.search(r'data-act="(POST|DELETE|PUT|PATCH)" data-url="[^"]*/api/', text)
        assert (await visitors.ask("GET", "/api/v1/runs")).status_code == 200


# Under any path


async def test_site_mounted_below_path_prefixes_all_links(site_app: Rota) -> None:
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        visitors.site = Starlette(routes=[Mount("/ops/rota", app=visitors.site)])
        page = await visitors.ask("GET", "/ops/rota/queues")
        assert page.status_code == 200
        found = re.findall(r'(?:href|src|action|data-url)="(/[^"]*)"', page.text)
        assert found
        assert all(each.startswith("/ops/rota/") for each in found)
        for each in {each.partition("?")[0] for each in found}:
            if "data-url" not in each and "/api/" not in each and "logout" not in each:
                answer = await visitors.ask("GET", each)
                assert answer.status_code in (200, 303), each
        answer = await visitors.ask("GET", "/ops/rota/runs?state=failed", who="nobody")
        assert answer.headers["location"].startswith("/ops/rota/login?next=%2Fruns")
        answer = await visitors.ask(
            "POST", "/ops/rota/login", who="nobody", json={"token": visitors.passes["viewer"]}
        )
        assert "Path=/ops/rota;" in answer.headers["set-cookie"]
        assert "HttpOnly" in answer.headers["set-cookie"]


async def test_static_files_are_immutable_only_under_their_version(page_client: SiteClient) -> None:
    page = (await page_client.ask("GET", "/")).text
    for each in re.findall(r'(?:href|src)="(/static/[^"]*)"', page):
        answer = await page_client.ask("GET", each, who="nobody")
        assert answer.status_code == 200, each
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    old = await page_client.ask("GET", "/static/0123456789ab/rota.css", who="nobody")
    assert old.headers["cache-control"] == "no-cache"
    assert (
        await page_client.ask("GET", "/static/x/..%2fpages.py", who="nobody")
    ).status_code == 404


# Signing in


async def test_sign_in_cookie_allows_pages_and_only_json_writes(
    page_client: SiteClient,
) -> None:
    cookie = {"Cookie": f"rota_token={page_client.passes['operator']}"}
    start = {"name": "greet", "input": {"name": "Ada"}}
    assert (await page_client.ask("GET", "/", who="nobody", headers=cookie)).status_code == 200
    done = await page_client.ask("POST", "/api/v1/runs", who="nobody", headers=cookie, json=start)
    assert done.status_code == 201
    form = await page_client.ask(
        "POST", "/api/v1/runs", who="nobody", headers=cookie, data={"name": "greet"}
    )
    assert form.status_code == 415
    empty = await page_client.ask("POST", "/api/v1/runs/1/cancel", who="nobody", headers=cookie)
    assert empty.status_code == 415
    cross = {**cookie, "Sec-Fetch-Site": "cross-site"}
    foreign = await page_client.ask("POST", "/api/v1/runs", who="nobody", headers=cross, json=start)
    assert foreign.status_code == 403


async def test_sign_in_cookie_with_invalid_bearer_token_is_refused(page_client: SiteClient) -> None:
    said = {
        "Cookie": f"rota_token={page_client.passes['admin']}",
        "Authorization": "Bearer rota_bad",
    }
    assert (
        await page_client.ask("GET", "/api/v1/me", who="nobody", headers=said)
    ).status_code == 401


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"token": 7}',
        b'{"token": "' + b"x" * 5000 + b'"}',
        b"[]",
        b'{"token": "\xff"}',
        b"{",
    ],
)
async def test_login_invalid_body_is_refused(page_client: SiteClient, body: bytes) -> None:
    said = {"Content-Type": "application/json"}
    answer = await page_client.ask("POST", "/login", who="nobody", headers=said, content=body)
    assert answer.status_code in (401, 413, 422)
    assert "set-cookie" not in answer.headers


async def test_sign_in_cookie_with_basic_header_is_accepted(page_client: SiteClient) -> None:
    said = {"Cookie": f"rota_token={page_client.passes['viewer']}", "Authorization": "Basic YTpi"}
    assert (await page_client.ask("GET", "/", who="nobody", headers=said)).status_code == 200


async def test_site_custom_authenticator_has_no_login_page(site_app: Rota) -> None:
    class Elsewhere:
        async def authenticate(self, request: Request) -> Caller:
            raise HttpError(401, "unauthenticated", "log in at the front door")

    async with SiteClient(site_app, parts=ALL_PARTS, auth=Elsewhere()) as visitors:
        answer = await visitors.ask("GET", "/", who="nobody", headers=HTML)
        assert (answer.status_code, "front door" in answer.text) == (401, True)
        assert (await visitors.ask("GET", "/login", who="nobody")).status_code == 303


# Live


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the overview with a page that records every rendering, at most one in 0.1 s."""
    made: list[str] = []

    async def overview(context: OperationContext) -> PageView:
        made.append(context.caller.role.text)
        return PageView("refused.html", error=None)

    monkeypatch.setattr(lively, "REFRESH_SECONDS", 0.1)
    monkeypatch.setattr(lively, "MAX_RENDER_SHARE", 1.0)
    page = dashboard.PAGES[0]
    stand_in = Page(page.path, page.title, page.role, overview)
    monkeypatch.setattr(dashboard, "PAGES", [stand_in, *dashboard.PAGES[1:]])
    return made


async def test_live_stream_many_clients_share_renderings(
    site_app: Rota, renderings: list[str]
) -> None:
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        looks = 0
        async with asyncio.TaskGroup() as group:

            async def look() -> None:
                nonlocal looks
                async with stream(visitors.site, "/", visitors.passes["viewer"]) as seen:
                    async for kind, _ in seen.events():
                        looks += kind == "refreshed"
                        if looks >= 60:
                            return

            for _ in range(10):
                group.create_task(look())
        assert looks >= 60
        assert len(renderings) <= looks / 4


async def test_live_stream_sends_only_changed_parts(
    site_app: Rota, page_client: SiteClient
) -> None:
    async with stream(page_client.site, "/", page_client.passes["viewer"]) as seen:
        looked, parts = 0, 0
        async for kind, data in seen.events():
            if kind == "part" and data["name"] == "alert_count":
                parts += 1
            looked += kind == "refreshed"
            if looked == 1 and parts == 1:
                await page_client.sql(
                    "insert into rota.alerts (kind, subject, message, host, pid)"
                    " values ('test', %s, 'm', 'h', 1)",
                    __name__,
                )
            if parts == 2:
                break
        assert looked >= 1
    await page_client.sql("delete from rota.alerts where subject = %s", __name__)


async def test_live_stream_expires_and_revoked_token_cannot_reopen(
    site_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lively, "STREAM_SECONDS", 0.3)
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        token = visitors.passes["viewer"]
        async with stream(visitors.site, "/", token) as seen:
            assert [kind async for kind, _ in seen.events()][-1] == "refreshed"
        await revoke_access_token(site_app, token.split("_")[1], "test")
        async with stream(visitors.site, "/", token) as seen:
            assert [event async for event in seen.events()] == []
            assert seen.status == 401


async def test_live_stream_ends_when_instance_drains(
    page_client: SiteClient, site_app: Rota
) -> None:
    async with stream(page_client.site, "/", page_client.passes["viewer"]) as seen:
        async for kind, _ in seen.events():
            if kind == "refreshed":
                site_app.readiness.drain()
    assert seen.status == 200


async def test_live_stream_without_database_sends_refused_events(
    page_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(self: OperationContext, *queries: Any) -> list[Any]:
        raise DatabaseUnavailable("nobody answers")

    monkeypatch.setattr(OperationContext, "read", away)
    monkeypatch.setattr(lively, "ERROR_PAUSE_SECONDS", 0.05)
    async with stream(page_client.site, "/", page_client.passes["viewer"]) as seen:
        kinds: list[str] = []
        async for kind, _ in seen.events():
            kinds.append(kind)
            if len(kinds) == 4:
                break
    assert kinds == ["retry: 1000", "refused", "refused", "refused"]


async def test_live_stream_waiting_for_refresh_ends_when_instance_drains(
    site_app: Rota, renderings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lively, "REFRESH_SECONDS", 60.0)
    monkeypatch.setattr(lively, "DRAIN_CHECK_SECONDS", 0.05)
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        async with stream(visitors.site, "/", visitors.passes["viewer"]) as seen:
            async for kind, _ in seen.events():
                if kind == "refreshed":
                    site_app.readiness.drain()
    assert renderings == ["viewer"]


async def test_live_stream_of_unknown_page_is_not_found(page_client: SiteClient) -> None:
    for at in ("//[", "/no/page", "//elsewhere.example/", "/api/v1/runs", "/live"):
        answer = await page_client.ask("GET", "/live", params={"page": at})
        assert answer.status_code == 404, at


def test_dashboard_first_page_is_the_overview() -> None:
    assert dashboard.PAGES[0].handler is overview.overview
