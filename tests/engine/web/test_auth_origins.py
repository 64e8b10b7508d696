"""Origin of requests: without authentication only this machine, and never a page of another origin."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rota import Rota
from rota.errors import SettingsError
from rota.web.csrf import is_loopback
from rota.web.site import ALL_PARTS, check_bind, site
from rota.web.tokens_auth import LOCAL_KEY_VARIABLE, LocalAccess
from support.places import SUPPORT
from support.site_client import SiteClient

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
def test_is_loopback_accepts_only_addresses_of_this_machine(
    address: str | None, here: bool
) -> None:
    assert is_loopback(address) is here


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.com"])
def test_site_local_access_on_public_address_is_refused(host: str) -> None:
    app = Rota("postgresql://nowhere/at_all")
    with pytest.raises(SettingsError, match="rota tokens create"):
        site(app, auth="local", bind=host)
    with pytest.raises(SettingsError, match="rota tokens create"):
        site(app, auth=LocalAccess(), bind=host)
    check_bind(host, "tokens")
    check_bind("127.0.0.1", "local")
    with pytest.raises(SettingsError, match="auth must be"):
        site(app, auth="nobody")  # type: ignore[arg-type]


def test_worker_command_local_access_on_public_address_is_refused() -> None:
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
        cwd=SUPPORT / "cli_apps",
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "can be reached from other machines" in done.stderr


@pytest.fixture
async def local_client(site_app: Rota) -> SiteClient:
    """Site with local access, mounted in an application: its address is not known."""
    local = LocalAccess(frozenset({"box.example"}))
    return SiteClient(site_app, auth=local, parts=ALL_PARTS)


async def test_local_access_with_key_is_admin(local_client: SiteClient) -> None:
    assert (await local_client.done("GET", "/api/v1/me"))["role"] == "admin"
    await local_client.done("POST", RUNS, json=START)


async def test_local_access_without_key_is_refused(local_client: SiteClient) -> None:
    """Without the key a request may come from a proxy on this machine that adds no forwarding headers."""
    before = await local_client.sql("select count(*) from rota.jobs")
    for said in ({}, {"Authorization": "Bearer guessed"}, {"Cookie": "rota_local_8000=guessed"}):
        for method, path in (("GET", RUNS), ("POST", RUNS), ("POST", "/admin/drain")):
            answer = await local_client.ask(method, path, who="nobody", headers=said, json=START)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert await local_client.sql("select count(*) from rota.jobs") == before
    live = await local_client.ask("GET", "/health/live", who="nobody")
    assert live.status_code == 200


async def test_local_access_cannot_create_tokens(local_client: SiteClient) -> None:
    answer = await local_client.ask("POST", "/api/v1/tokens", json={"name": "ada", "role": "admin"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    assert "rota tokens create" in answer.json()["error"]["message"]
    named = "select count(*) from rota.access_tokens where name = 'ada'"
    assert await local_client.sql(named) == [(0,)]


async def test_local_link_sets_key_cookie_and_removes_key_from_address(
    local_client: SiteClient,
) -> None:
    key = local_client.passes["admin"]
    accept = {"Accept": "text/html"}
    answer = await local_client.ask("GET", f"/runs?name=a&key={key}", who="nobody", headers=accept)
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?name=a")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"rota_local_8000={key};")
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    signed_in = {**accept, "Cookie": cookie.partition(";")[0]}
    assert (await local_client.ask("GET", "/runs", who="nobody", headers=signed_in)).is_success


async def test_local_page_without_key_redirects_to_login_with_hint(
    local_client: SiteClient,
) -> None:
    accept = {"Accept": "text/html"}
    for path in ("/runs", "/runs?key=guessed", "/?key="):
        answer = await local_client.ask("GET", path, who="nobody", headers=accept)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login"), path
        assert "set-cookie" not in answer.headers
    answer = await local_client.ask("GET", "/login", who="nobody", headers=accept)
    assert answer.status_code == 401
    assert "Open the link that the program printed" in answer.text


async def test_local_link_from_proxy_or_remote_address_is_refused(
    local_client: SiteClient,
) -> None:
    key, accept = local_client.passes["admin"], {"Accept": "text/html"}
    for said, client in (({"X-Forwarded-For": "1.2.3.4"}, "127.0.0.1"), ({}, "203.0.113.7")):
        answer = await local_client.ask(
            "GET", f"/?key={key}", who="nobody", headers={**accept, **said}, client=client
        )
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_local_access_key_is_random_unless_set_in_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = {LocalAccess().key for _ in range(100)}
    assert len(keys) == 100
    assert min(map(len, keys)) >= 22
    monkeypatch.setenv(LOCAL_KEY_VARIABLE, "given by rota dev")
    assert LocalAccess().key == "given by rota dev"


async def test_local_access_remote_or_forwarded_request_is_refused(
    local_client: SiteClient,
) -> None:
    for client, base in (
        ("203.0.113.7", "http://localhost:8000"),
        ("127.0.0.1", "http://10.0.0.1:8000"),
        ("", "http://localhost:8000"),
    ):
        said = {"Host": "localhost:8000"}
        answer = await local_client.ask("GET", RUNS, client=client, base=base, headers=said)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local"), base
    for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
        answer = await local_client.ask("GET", RUNS, headers={name: "203.0.113.7"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_local"), name


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "["]
)
async def test_local_access_unknown_host_is_refused(local_client: SiteClient, host: str) -> None:
    answer = await local_client.ask("GET", RUNS, headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "unknown_host")


async def test_local_access_known_host_is_accepted(local_client: SiteClient) -> None:
    for host in ("box.example", "BOX.example:8000", "[::1]:8000"):
        answer = await local_client.ask("GET", RUNS, headers={"Host": host})
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
async def test_post_from_other_origin_is_refused(
    site_client: SiteClient, local_client: SiteClient, said: dict[str, str]
) -> None:
    before = await site_client.sql("select count(*) from rota.jobs")
    for who in (site_client, local_client):
        answer = await who.ask("POST", RUNS, headers=said, json=START)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_origin")
        assert "access-control-allow-origin" not in answer.headers
    assert await site_client.sql("select count(*) from rota.jobs") == before


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "http://localhost:8000"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:8000"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_post_from_same_origin_is_accepted(
    local_client: SiteClient, said: dict[str, str]
) -> None:
    await local_client.done("POST", RUNS, headers=said, json=START)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None]
)
async def test_post_with_cookie_and_without_json_is_refused(
    local_client: SiteClient, kind: str | None
) -> None:
    """An old browser sends no header that names the page's origin, so only JSON is accepted."""
    headers = {} if kind is None else {"Content-Type": kind}
    headers["Cookie"] = f"rota_local_8000={local_client.passes['admin']}"
    body = b'{"name": "greet", "input": {"name": "Ada"}}' if kind else b""
    answer = await local_client.ask("POST", RUNS, who="nobody", headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")


async def test_post_with_token_and_empty_body_is_accepted(site_client: SiteClient) -> None:
    run = await site_client.start("greet", input={"name": "Ada"})
    await site_client.done("POST", f"{RUNS}/{run}/cancel", content=b"")
