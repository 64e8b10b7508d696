"""Origin of requests: without authentication only this machine, and never a page of another origin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota import Rota
from rota.errors import SettingsError
from rota.web.csrf import is_loopback
from rota.web.site import ALL_PARTS, check_bind, site
from rota.web.tokens_auth import LOCAL_KEY_VARIABLE, LocalAccess

from .visitors import Visitors

RUNS = "/api/v1/runs"
START = {"name": "greet", "input": {"name": "Ada"}}


# Local access


@pytest.mark.parametrize(
    ("address", "here"),
    [
        *(("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("[::1]", True)),
        *(("localhost", True), ("LOCALHOST.", True), ("app.localhost", True)),
        *(("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("", False)),
        *(
            ("10.0.0.1", False),
            ("localhost.evil.example", False),
            ("127.0.0.1.evil.example", False),
        ),
        *(("evil-localhost", False), (None, False), ("2130706433", False)),
    ],
)
def test_which_addresses_are_of_this_machine_alone(address: str | None, here: bool) -> None:
    assert is_loopback(address) is here


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.com"])
def test_without_authentication_it_is_not_served_to_others(host: str) -> None:
    app = Rota("postgresql://nowhere/at_all")
    with pytest.raises(SettingsError, match="rota tokens create"):
        site(app, auth="local", bind=host)
    with pytest.raises(SettingsError, match="rota tokens create"):
        site(app, auth=LocalAccess(), bind=host)
    check_bind(host, "tokens")
    check_bind("127.0.0.1", "local")
    with pytest.raises(SettingsError, match="auth must be"):
        site(app, auth="nobody")  # type: ignore[arg-type]


def test_a_worker_that_would_serve_others_without_authentication_does_not_start() -> None:
    words = [
        "worker",
        "shop:app",
        "--health-host",
        "0.0.0.0",
        "--health-port",
        "0",
        "--auth",
        "local",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rota", "--dsn", "postgresql://127.0.0.1:1/nowhere", *words],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1] / "cli" / "apps",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "can be reached from other machines" in done.stderr


@pytest.fixture
async def neighbours(site_app: Rota) -> Visitors:
    """Site with local access, mounted in an application: its address is not known."""
    local = LocalAccess(frozenset({"box.example"}))
    return Visitors(site_app, auth=local, parts=ALL_PARTS)


async def test_local_access_with_the_key_is_an_administrator(neighbours: Visitors) -> None:
    assert (await neighbours.done("GET", "/api/v1/me"))["role"] == "admin"
    await neighbours.done("POST", RUNS, json=START)


async def test_local_access_without_the_key_is_refused(neighbours: Visitors) -> None:
    """Without the key a request may come from a proxy on this machine that adds no forwarding headers."""
    before = await neighbours.sql("select count(*) from rota.jobs")
    for said in ({}, {"Authorization": "Bearer guessed"}, {"Cookie": "rota_local_8000=guessed"}):
        for method, path in (("GET", RUNS), ("POST", RUNS), ("POST", "/admin/drain")):
            answer = await neighbours.ask(method, path, who="nobody", headers=said, json=START)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert await neighbours.sql("select count(*) from rota.jobs") == before
    live = await neighbours.ask("GET", "/health/live", who="nobody")
    assert live.status_code == 200


async def test_local_access_creates_no_token(neighbours: Visitors) -> None:
    answer = await neighbours.ask("POST", "/api/v1/tokens", json={"name": "ada", "role": "admin"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert "rota tokens create" in answer.json()["error"]["message"]
    named = "select count(*) from rota.access_tokens where name = 'ada'"
    assert await neighbours.sql(named) == [(0,)]


async def test_local_link_stores_the_key_in_a_cookie_and_leaves_the_address(
    neighbours: Visitors,
) -> None:
    key = neighbours.passes["admin"]
    accept = {"Accept": "text/html"}
    answer = await neighbours.ask("GET", f"/runs?name=a&key={key}", who="nobody", headers=accept)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?name=a")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"rota_local_8000={key};")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    signed_in = {**accept, "Cookie": cookie.partition(";")[0]}
    assert (await neighbours.ask("GET", "/runs", who="nobody", headers=signed_in)).is_success


async def test_local_page_without_the_key_tells_of_the_link(neighbours: Visitors) -> None:
    accept = {"Accept": "text/html"}
    for path in ("/runs", "/runs?key=guessed", "/?key="):
        answer = await neighbours.ask("GET", path, who="nobody", headers=accept)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        assert "set-cookie" not in answer.headers
    answer = await neighbours.ask("GET", "/login", who="nobody", headers=accept)
    assert answer.status_code == 401
    assert "Open the link that the program printed" in answer.text


async def test_local_link_used_through_a_proxy_or_from_elsewhere_signs_nobody_in(
    neighbours: Visitors,
) -> None:
    key, accept = neighbours.passes["admin"], {"Accept": "text/html"}
    for said, client in (({"X-Forwarded-For": "1.2.3.4"}, "127.0.0.1"), ({}, "203.0.113.7")):
        answer = await neighbours.ask(
            "GET", f"/?key={key}", who="nobody", headers={**accept, **said}, client=client
        )
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_local_access_has_another_key_with_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {LocalAccess().key for _ in range(100)}
    assert len(keys) == 100
    assert min(map(len, keys)) >= 22
    monkeypatch.setenv(LOCAL_KEY_VARIABLE, "given by rota dev")
    assert LocalAccess().key == "given by rota dev"


async def test_without_authentication_nobody_else_may_do_anything(neighbours: Visitors) -> None:
    for client, base in (
        ("203.0.113.7", "http://localhost:8000"),
        ("127.0.0.1", "http://10.0.0.1:8000"),
        ("", "http://localhost:8000"),
    ):
        said = {"Host": "localhost:8000"}
        answer = await neighbours.ask("GET", RUNS, client=client, base=base, headers=said)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local"), base
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        answer = await neighbours.ask("GET", RUNS, headers={name: "203.0.113.7"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local"), name


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "["]
)
async def test_a_name_that_was_made_to_lead_here_leads_nowhere(
    neighbours: Visitors, host: str
) -> None:
    answer = await neighbours.ask("GET", RUNS, headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "unknown_host")


async def test_a_name_that_was_given_to_this_machine_leads_here(neighbours: Visitors) -> None:
    for host in ("box.example", "BOX.example:8000", "[::1]:8000"):
        answer = await neighbours.ask("GET", RUNS, headers={"Host": host})
        assert answer.status_code == 200, host


# Pages of another origin

FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:9999"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost:8000"},
]


@pytest.mark.parametrize("said", FOREIGN)
async def test_a_page_of_another_origin_changes_nothing(
    visitors: Visitors, neighbours: Visitors, said: dict[str, str]
) -> None:
    before = await visitors.sql("select count(*) from rota.jobs")
    for who in (visitors, neighbours):
        answer = await who.ask("POST", RUNS, headers=said, json=START)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_origin")
        assert "access-control-allow-origin" not in answer.headers
    assert await visitors.sql("select count(*) from rota.jobs") == before


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://localhost:8000"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8000"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_a_page_of_our_own_does(neighbours: Visitors, said: dict[str, str]) -> None:
    await neighbours.done("POST", RUNS, headers=said, json=START)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
async def test_what_any_page_can_send_is_refused(neighbours: Visitors, kind: str | None) -> None:
    """An old browser sends no header that names the page's origin, so only JSON is accepted."""
    headers = {} if kind is None else {"Content-Type": kind}
    headers["Cookie"] = f"rota_local_8000={neighbours.passes['admin']}"
    body = b'{"name": "greet", "input": {"name": "Ada"}}' if kind else b""
    answer = await neighbours.ask("POST", RUNS, who="nobody", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")


async def test_with_a_token_nothing_at_all_may_be_sent(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "Ada"})
    await visitors.done("POST", f"{RUNS}/{run}/cancel", content=b"")
