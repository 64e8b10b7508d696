"""Authentication: required settings, tokens, and authenticators of the application."""

from __future__ import annotations

import asyncio
import time
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
from rota.web.auth import Guard, open_to_all, require_role
from rota.web.responses import HttpError
from rota.web.tokens_auth import (
    MAX_ATTEMPTS_PER_MINUTE,
    MAX_UNKNOWN_LOOKUPS,
    QUERY_TIMEOUT_SECONDS,
    LocalAccess,
    TokenAuthenticator,
)

from .visitors import Visitors

RUNS = "/api/v1/runs"
START = {"name": "greet", "input": {"name": "Ada"}}


@require_role(Role.VIEWER)
async def guarded(request: Request) -> Response:
    return PlainTextResponse("secret")


@open_to_all
async def opened(request: Request) -> Response:
    return PlainTextResponse("hello")


async def forgotten(request: Request) -> Response:
    return PlainTextResponse("secret")


# Settings


@pytest.mark.parametrize(
    "routes",
    [
        [Route("/a", guarded), Route("/b", forgotten)],
        [Mount("/a", routes=[Route("/b", forgotten)])],
        [Mount("/a", app=Starlette())],
        [WebSocketRoute("/a", forgotten)],
    ],
)
def test_a_route_that_does_not_say_whom_it_is_for_keeps_the_site_from_starting(
    routes: list[Route],
) -> None:
    with pytest.raises(DefinitionError, match=r"has no access rule"):
        Guard(Starlette(routes=routes), LocalAccess(), routes)


async def test_an_endpoint_that_is_reached_past_the_guard_answers_nobody() -> None:
    app = Starlette(routes=[Route("/guarded", guarded), Route("/open", opened)])
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/guarded")
        assert (answer.status_code, "secret" in answer.text) == (403, False)
        assert (await client.get("/open")).text == "hello"


def test_roles_are_in_an_order() -> None:
    assert Role.VIEWER < Role.OPERATOR < Role.ADMIN
    assert Caller("x", Role.OPERATOR).has_role(Role.VIEWER)
    assert not Caller("x", Role.OPERATOR).has_role(Role.ADMIN)


# Tokens


def test_a_token_is_256_random_bits_and_its_repr_tells_none_of_them() -> None:
    tokens = {AccessToken.generate().text for _ in range(100)}
    assert len(tokens) == 100
    token = AccessToken.generate()
    _, id, secret = token.text.split("_", 2)
    assert (id, len(secret)) == (token.id, 43)
    assert secret not in repr(token)
    assert AccessToken.parse(token.text) == token
    assert AccessToken.parse(token.text + "x") is None
    assert AccessToken.parse(token.text + "\n") is None


async def test_only_the_digest_of_a_token_is_kept(visitors: Visitors) -> None:
    secret = visitors.passes["admin"].split("_", 2)[2]
    [[everything]] = await visitors.sql("select json_agg(t)::text from rota.access_tokens as t")
    [[audited]] = await visitors.sql("select json_agg(t)::text from rota.audit as t")
    assert secret not in everything + audited


async def test_a_token_with_one_letter_changed_opens_nothing(visitors: Visitors) -> None:
    good = visitors.passes["admin"]
    for at in (-1, -43, len("rota_")):
        letter = "a" if good[at] != "a" else "b"
        text = good[:at] + letter + good[at:][1:]
        answer = await visitors.ask("GET", RUNS, headers={"Authorization": f"Bearer {text}"})
        assert answer.status_code == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Basic cm90YTpyb3Rh", "Bearer  ", "rota_x_y"])
async def test_what_is_no_token_opens_nothing(visitors: Visitors, header: str) -> None:
    answer = await visitors.ask("GET", RUNS, headers={"Authorization": header})
    assert answer.status_code == 401


async def test_a_token_in_the_query_opens_nothing(visitors: Visitors) -> None:
    token = visitors.passes["admin"]
    for name in ("token", "access_token"):
        answer = await visitors.ask("GET", f"{RUNS}?{name}={token}", who="nobody")
        assert answer.status_code == 401


async def test_revoking_is_felt_by_the_very_next_request(visitors: Visitors) -> None:
    token, _ = await create_access_token(visitors.app, "ci", Role.VIEWER, None, "test")
    said = {"Authorization": f"Bearer {token.text}"}
    assert (await visitors.ask("GET", RUNS, headers=said)).status_code == 200
    await revoke_access_token(visitors.app, token.id, "test")
    answer = await visitors.ask("GET", RUNS, headers=said)
    assert (answer.status_code, "was revoked" in answer.text) == (401, True)


async def test_its_last_use_is_noted_once_a_minute(visitors: Visitors) -> None:
    assert (await visitors.kept("viewer")).last_used is None
    await visitors.done("GET", RUNS, who="viewer")
    used = (await visitors.kept("viewer")).last_used
    assert used is not None
    await visitors.done("GET", RUNS, who="viewer")
    assert (await visitors.kept("viewer")).last_used == used
    id = visitors.passes["viewer"].split("_")[1]
    await visitors.sql(
        "update rota.access_tokens set last_used = last_used - interval '61 s' where id = %s", id
    )
    await visitors.done("GET", RUNS, who="viewer")
    again = (await visitors.kept("viewer")).last_used
    assert again is not None
    assert again > used


def guess(visitors: Visitors, who: str) -> str:
    """Return a token with a known id and a wrong secret."""
    return "_".join([*visitors.passes[who].split("_")[:2], "x" * 43])


async def test_who_tries_many_secrets_of_one_token_is_put_off(visitors: Visitors) -> None:
    async def attempt(client: str) -> httpx2.Response:
        bad = {"Authorization": f"Bearer {guess(visitors, 'viewer')}"}
        return await visitors.ask("GET", RUNS, headers=bad, client=client)

    codes = [(await attempt("203.0.113.7")).status_code for _ in range(MAX_ATTEMPTS_PER_MINUTE)]
    assert set(codes) == {401}
    late = await attempt("203.0.113.7")
    assert (late.status_code, late.json()["error"]["code"]) == (429, "too_many_attempts")
    assert int(late.headers["retry-after"]) >= 1
    # The limit is for each address.
    assert (await attempt("203.0.113.8")).status_code == 401


@pytest.mark.parametrize("bad", ["malformed", "unknown", "guessed"])
async def test_nobody_is_locked_out_by_who_comes_from_the_same_proxy(
    visitors: Visitors, bad: str
) -> None:
    """A valid token is accepted from an address with many failed attempts, also at its first use here."""
    for _ in range(2 * MAX_ATTEMPTS_PER_MINUTE):
        text = {
            "malformed": "no token at all",
            "unknown": AccessToken.generate().text,
            "guessed": guess(visitors, "operator"),
        }[bad]
        headers = {"Authorization": f"Bearer {text}"}
        answer = await visitors.ask("GET", RUNS, headers=headers, client="203.0.113.9")
        assert answer.status_code in (401, 429)
    answer = await visitors.ask("GET", RUNS, who="viewer", client="203.0.113.9")
    assert answer.status_code == 200


async def test_of_tokens_that_nobody_knows_few_are_looked_up_at_once(
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

    assert (await doorman.identify(_asking(good), good.text)).name.startswith("ci")
    monkeypatch.setattr(doorman, "_look_up", slow)
    strangers = [AccessToken.generate() for _ in range(20)]
    asked = [asyncio.create_task(doorman.identify(_asking(each), each.text)) for each in strangers]
    while looked < MAX_UNKNOWN_LOOKUPS:
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert looked == MAX_UNKNOWN_LOOKUPS
    # A token that was already looked up does not wait for unknown ones.
    async with asyncio.timeout(60):
        await doorman.identify(_asking(good), good.text)
    let.set()
    ended = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, HttpError) and each.status == 401 for each in ended)


def _asking(token: AccessToken) -> Request:
    header = (b"authorization", f"Bearer {token.text}".encode())
    return Request({"type": "http", "headers": [header], "client": ("203.0.113.7", 1)})


async def test_while_the_database_is_away_who_was_known_may_look_and_do_nothing(
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


async def test_a_database_that_says_nothing_is_away(site_app: Rota, site_dsn: str) -> None:
    """A scrape times out after a few seconds, and would report this process as down."""
    token, _ = await create_access_token(site_app, "ops", Role.ADMIN, timedelta(days=1), "test")
    with Proxy(site_dsn) as proxy:
        async with Rota(proxy.dsn) as app:
            doorman = TokenAuthenticator(app)
            await doorman.authenticate(_asking(token))
            proxy.hold()
            began = time.monotonic()
            known = await doorman.authenticate(_asking(token))
            assert (known.role, known.is_cached) == (Role.VIEWER, True)
            assert time.monotonic() - began < QUERY_TIMEOUT_SECONDS + 1
            proxy.heal()


async def test_who_is_only_remembered_is_told_to_come_again_not_that_he_may_not() -> None:
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


async def test_in_an_application_of_yours_it_is_the_same_below_a_path(visitors: Visitors) -> None:
    visitors.site = Starlette(routes=[Mount("/rota", app=visitors.site)])
    assert (await visitors.done("GET", "/rota/api/v1/me", who="viewer"))["role"] == "viewer"
    assert (await visitors.ask("GET", "/rota/api/v1/me", who="nobody")).status_code == 401
    assert (await visitors.ask("POST", "/rota/api/v1/runs", who="viewer")).status_code == 403
    await visitors.done("POST", "/rota/api/v1/runs", who="operator", json=START)
    document = await visitors.done("GET", "/rota/api/v1/openapi.json")
    assert document["servers"] == [{"url": "/rota"}]


class Badges:
    """Authenticator that trusts a header of the request."""

    async def authenticate(self, request: Request) -> Caller:
        if "badge" not in request.headers:
            raise HttpError(401, "unauthenticated", "no badge")
        return Caller(request.headers["badge"], Role.OPERATOR)


async def test_who_asks_can_be_told_by_the_application(site_app: Rota) -> None:
    visitors = Visitors(site_app, auth=Badges(), bind="0.0.0.0")
    assert (await visitors.ask("GET", RUNS)).status_code == 401
    badge = {"Badge": "ann"}
    assert (await visitors.done("GET", "/api/v1/me", headers=badge))["name"] == "ann"
    assert (await visitors.ask("GET", "/api/v1/audit", headers=badge)).status_code == 403
    foreign = {**badge, "Origin": "https://evil.example"}
    assert (await visitors.ask("POST", RUNS, headers=foreign, json=START)).status_code == 403


# Headers of every answer


async def test_no_answer_is_kept_framed_or_guessed_at(visitors: Visitors) -> None:
    for method, path, who in (
        *(("GET", RUNS, "viewer"), ("GET", RUNS, "nobody"), ("GET", "/nowhere", "viewer")),
        *(("PUT", RUNS, "admin"), ("POST", RUNS, "admin"), ("GET", "/health/live", "nobody")),
    ):
        answer = await visitors.ask(method, path, who=who)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/json"
            assert set(answer.json()["error"]) == {"code", "message"}


async def test_a_websocket_is_hung_up_on(visitors: Visitors) -> None:
    said: list[object] = []

    async def send(message: object) -> None:
        said.append(message)

    async def receive() -> dict[str, str]:
        await asyncio.sleep(0)
        return {"type": "websocket.connect"}

    await visitors.site({"type": "websocket", "path": RUNS, "headers": []}, receive, send)
    assert said == [{"type": "websocket.close", "code": 1008}]
