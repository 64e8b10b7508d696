"""Authentication: required settings, tokens, and authenticators of the application."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

from rota import Rota
from rota.app.tokens import create_access_token, revoke_access_token
from rota.errors import DefinitionError
from rota.model.access import AccessToken, Caller, Role
from rota.testing.proxy.proxy import Proxy
from rota.web import tokens_auth
from rota.web.auth import Guard, open_to_all, require_role
from rota.web.responses import HttpError
from rota.web.tokens_auth import (
    MAX_ATTEMPTS_PER_MINUTE,
    MAX_UNKNOWN_LOOKUPS,
    LocalAccess,
    TokenAuthenticator,
)
from support.site_client import SiteClient

RUNS = "/api/v1/runs"
START = {"name": "greet", "input": {"name": "Ada"}}


@require_role(Role.VIEWER)
async def guarded(request: Request) -> Response:
    return PlainTextResponse("secret")


@open_to_all
async def opened(request: Request) -> Response:
    return PlainTextResponse("hello")


async def without_access_rule(request: Request) -> Response:
    return PlainTextResponse("secret")


# Settings


@pytest.mark.parametrize(
    "routes",
    [
        [Route("/a", guarded), Route("/b", without_access_rule)],
        [Mount("/a", routes=[Route("/b", without_access_rule)])],
        [Mount("/a", app=Starlette())],
        [WebSocketRoute("/a", without_access_rule)],
    ],
)
def test_guard_route_without_access_rule_is_refused(
    routes: list[Route],
) -> None:
    with pytest.raises(DefinitionError, match=r"has no access rule"):
        Guard(Starlette(routes=routes), LocalAccess(), routes)


async def test_endpoint_reached_without_guard_is_forbidden() -> None:
    app = Starlette(routes=[Route("/guarded", guarded), Route("/open", opened)])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/guarded")
        assert (answer.status_code, "secret" in answer.text) == (403, False)
        assert (await client.get("/open")).text == "hello"


def test_roles_are_ordered() -> None:
    assert Role.VIEWER < Role.OPERATOR < Role.ADMIN
    assert Caller("x", Role.OPERATOR).has_role(Role.VIEWER)
    assert not Caller("x", Role.OPERATOR).has_role(Role.ADMIN)


# Tokens


def test_token_is_random_and_hidden_in_repr() -> None:
    tokens = {AccessToken.generate().text for _ in range(100)}
    assert len(tokens) == 100
    token = AccessToken.generate()
    _, id, secret = token.text.split("_", 2)
    assert (id, len(secret)) == (token.id, 43)
    assert secret not in repr(token)
    assert AccessToken.parse(token.text) == token
    assert AccessToken.parse(token.text + "x") is None
    assert AccessToken.parse(token.text + "\n") is None


async def test_token_store_contains_only_the_digest(site_client: SiteClient) -> None:
    secret = site_client.passes["admin"].split("_", 2)[2]
    [[everything]] = await site_client.sql("select json_agg(t)::text from rota.access_tokens as t")
    [[audited]] = await site_client.sql("select json_agg(t)::text from rota.audit as t")
    assert secret not in everything + audited


async def test_token_with_changed_letter_is_refused(site_client: SiteClient) -> None:
    good = site_client.passes["admin"]
    for at in (-1, -43, len("rota_")):
        letter = "a" if good[at] != "a" else "b"
        text = good[:at] + letter + good[at:][1:]
        answer = await site_client.ask("GET", RUNS, headers={"Authorization": f"Bearer {text}"})
        assert answer.status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Basic cm90YTpyb3Rh", "Bearer  ", "rota_x_y"])
async def test_authorization_header_without_token_is_refused(
    site_client: SiteClient, header: str
) -> None:
    answer = await site_client.ask("GET", RUNS, headers={"Authorization": header})
    assert answer.status_code == 401


async def test_token_in_query_is_refused(site_client: SiteClient) -> None:
    token = site_client.passes["admin"]
    for name in ("token", "access_token"):
        answer = await site_client.ask("GET", f"{RUNS}?{name}={token}", who="nobody")
        assert answer.status_code == 401


async def test_token_revoked_is_refused_at_the_next_request(site_client: SiteClient) -> None:
    token, _ = await create_access_token(site_client.app, "ci", Role.VIEWER, None, "test")
    said = {"Authorization": f"Bearer {token.text}"}
    assert (await site_client.ask("GET", RUNS, headers=said)).status_code == 200
    await revoke_access_token(site_client.app, token.id, "test")
    answer = await site_client.ask("GET", RUNS, headers=said)
    assert (answer.status_code, "was revoked" in answer.text) == (401, True)


async def test_token_last_use_is_recorded_once_a_minute(site_client: SiteClient) -> None:
    assert (await site_client.kept("viewer")).last_used is None
    await site_client.done("GET", RUNS, who="viewer")
    used = (await site_client.kept("viewer")).last_used
    assert used is not None
    await site_client.done("GET", RUNS, who="viewer")
    assert (await site_client.kept("viewer")).last_used == used
    id = site_client.passes["viewer"].split("_")[1]
    await site_client.sql(
        "update rota.access_tokens set last_used = last_used - interval '61 s' where id = %s", id
    )
    await site_client.done("GET", RUNS, who="viewer")
    again = (await site_client.kept("viewer")).last_used
    assert again is not None
    assert again > used


def token_with_wrong_secret(visitors: SiteClient, who: str) -> str:
    """Return a token with a known id and a wrong secret."""
    return "_".join([*visitors.passes[who].split("_")[:2], "x" * 43])


async def test_token_many_wrong_secrets_are_rate_limited_per_address(
    site_client: SiteClient,
) -> None:
    async def attempt(client: str) -> httpx2.Response:
        bad = {"Authorization": f"Bearer {token_with_wrong_secret(site_client, 'viewer')}"}
        return await site_client.ask("GET", RUNS, headers=bad, client=client)

    codes = [(await attempt("203.0.113.7")).status_code for _ in range(MAX_ATTEMPTS_PER_MINUTE)]
    assert set(codes) == {401}
    late = await attempt("203.0.113.7")
    assert (late.status_code, late.json()["error"]["code"]) == (429, "too_many_attempts")
    assert int(late.headers["retry-after"]) >= 1
    # The limit is for each address.
    assert (await attempt("203.0.113.8")).status_code == 401


@pytest.mark.parametrize("bad", ["malformed", "unknown", "guessed"])
async def test_token_valid_is_accepted_despite_failures_of_its_address(
    site_client: SiteClient, bad: str
) -> None:
    """A valid token is accepted from an address with many failed attempts, also at its first use here."""
    for _ in range(2 * MAX_ATTEMPTS_PER_MINUTE):
        text = {
            "malformed": "no token at all",
            "unknown": AccessToken.generate().text,
            "guessed": token_with_wrong_secret(site_client, "operator"),
        }[bad]
        headers = {"Authorization": f"Bearer {text}"}
        answer = await site_client.ask("GET", RUNS, headers=headers, client="203.0.113.9")
        assert answer.status_code in (401, 429)
    answer = await site_client.ask("GET", RUNS, who="viewer", client="203.0.113.9")
    assert answer.status_code == 200


async def test_authenticator_limits_concurrent_lookups_of_unknown_tokens(
    site_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    doorman = TokenAuthenticator(site_app)
    good, _ = await create_access_token(site_app, "ci", Role.VIEWER, timedelta(days=1), "test")
    let, looked = asyncio.Event(), 0
    look = doorman._look_up

    async def slow(token: AccessToken) -> Any:
        nonlocal looked
        looked += 1
        if token.id != good.id:
            await let.wait()
        return await look(token)

    assert (await doorman.identify(_request_with_token(good), good.text)).name.startswith("ci")
    monkeypatch.setattr(doorman, "_look_up", slow)
    strangers = [AccessToken.generate() for _ in range(20)]
    asked = [
        asyncio.create_task(doorman.identify(_request_with_token(each), each.text))
        for each in strangers
    ]
    while looked < MAX_UNKNOWN_LOOKUPS:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == MAX_UNKNOWN_LOOKUPS
    # A token that was already looked up does not wait for unknown ones.
    async with asyncio.timeout(60):
        await doorman.identify(_request_with_token(good), good.text)
    let.set()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, HttpError) and each.status == 401 for each in ended)


def _request_with_token(token: AccessToken) -> Request:
    header = (b"authorization", f"Bearer {token.text}".encode())
    return Request({"type": "http", "headers": [header], "client": ("203.0.113.7", 1)})


async def test_authenticator_without_database_grants_known_token_viewer_role(
    site_app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A known token gets the role viewer, which can read the metrics of this process."""
    doorman = TokenAuthenticator(site_app)
    token, _ = await create_access_token(site_app, "ci", Role.ADMIN, timedelta(days=1), "test")
    stranger = AccessToken.generate()

    def asking(token: AccessToken) -> Request:
        header = (b"authorization", f"Bearer {token.text}".encode())
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [header]}
        return Request({**scope, "client": ("127.0.0.1", 1)})

    assert (await doorman.authenticate(asking(token))).role is Role.ADMIN
    away = Rota("postgresql://127.0.0.1:1/nowhere", outage_timeout=0.2)
    monkeypatch.setattr(doorman, "_app", away)
    assert (await doorman.authenticate(asking(token))).role is Role.VIEWER
    with pytest.raises(Exception, match="the database is unavailable") as raised:
        await doorman.authenticate(asking(stranger))
    assert getattr(raised.value, "status", None) == 503
    await away.close()


async def test_authenticator_silent_database_falls_back_to_cached_viewer(
    site_app: Rota, site_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape times out after a few seconds, and would report this process as down.

    The database itself may take an hour to answer.
    """
    token, _ = await create_access_token(site_app, "ops", Role.ADMIN, timedelta(days=1), "test")
    with Proxy(site_dsn) as proxy:
        async with Rota(proxy.dsn, statement_timeout=3600) as app:
            doorman = TokenAuthenticator(app)
            await doorman.authenticate(_request_with_token(token))
            proxy.hold()
            monkeypatch.setattr(tokens_auth, "QUERY_TIMEOUT_SECONDS", 0.1)
            async with asyncio.timeout(60):
                known = await doorman.authenticate(_request_with_token(token))
            assert (known.role, known.is_cached) == (Role.VIEWER, True)
            proxy.heal()


async def test_guard_cached_caller_without_role_gets_503_instead_of_403() -> None:
    class Remembering:
        async def authenticate(self, request: Request) -> Caller:
            return Caller("ops", Role.VIEWER, is_cached=True)

    @require_role(Role.OPERATOR)
    async def change(request: Request) -> Response:
        return PlainTextResponse("changed")

    routes = [Route("/change", change, methods=["POST"])]
    guarded = Guard(Starlette(routes=routes), Remembering(), routes)
    transport = httpx2.ASGITransport(app=guarded)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as asking:
        answer = await asking.post("/change", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database")
    assert answer.headers["retry-after"] == "1"


# Mounted in an application


async def test_site_mounted_below_path_authenticates_alike(site_client: SiteClient) -> None:
    site_client.site = Starlette(routes=[Mount("/rota", app=site_client.site)])
    assert (await site_client.done("GET", "/rota/api/v1/me", who="viewer"))["role"] == "viewer"
    assert (await site_client.ask("GET", "/rota/api/v1/me", who="nobody")).status_code == 401
    assert (await site_client.ask("POST", "/rota/api/v1/runs", who="viewer")).status_code == 403
    await site_client.done("POST", "/rota/api/v1/runs", who="operator", json=START)
    document = await site_client.done("GET", "/rota/api/v1/openapi.json")
    assert document["servers"] == [{"url": "/rota"}]


class BadgeAuthenticator:
    """Authenticator that trusts a header of the request."""

    async def authenticate(self, request: Request) -> Caller:
        if "badge" not in request.headers:
            raise HttpError(401, "unauthenticated", "no badge")
        return Caller(request.headers["badge"], Role.OPERATOR)


async def test_site_custom_authenticator_defines_the_caller(site_app: Rota) -> None:
    visitors = SiteClient(site_app, auth=BadgeAuthenticator(), bind="0.0.0.0")
    assert (await visitors.ask("GET", RUNS)).status_code == 401
    badge = {"Badge": "ann"}
    assert (await visitors.done("GET", "/api/v1/me", headers=badge))["name"] == "ann"
    assert (await visitors.ask("GET", "/api/v1/audit", headers=badge)).status_code == 403
    foreign = {**badge, "Origin": "https://evil.example"}
    assert (await visitors.ask("POST", RUNS, headers=foreign, json=START)).status_code == 403


# Headers of every answer


async def test_responses_carry_security_headers(site_client: SiteClient) -> None:
    for method, path, who in (
        *(("GET", RUNS, "viewer"), ("GET", RUNS, "nobody"), ("GET", "/nowhere", "viewer")),
        *(("PUT", RUNS, "admin"), ("POST", RUNS, "admin"), ("GET", "/health/live", "nobody")),
    ):
        answer = await site_client.ask(method, path, who=who)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/json"
            assert set(answer.json()["error"]) == {"code", "message"}


async def test_site_websocket_is_closed(site_client: SiteClient) -> None:
    said: list[object] = []

    async def send(message: object) -> None:
        said.append(message)

    async def receive() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"type": "websocket.connect"}

    await site_client.site({"type": "websocket", "path": RUNS, "headers": []}, receive, send)
    assert said == [{"type": "websocket.close", "code": 1008}]
