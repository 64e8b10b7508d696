"""Where somebody may ask from: without authentication from this machine alone, and never from a page of
another origin.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota import Rota
from rota.errors import SettingsError
from rota.web.origins import is_loopback
from rota.web.site import check_bind, site

from .visitors import Visitors

RUNS = "/api/v1/runs"
START = {"name": "greet", "input": {"name": "Ada"}}


# This machine alone


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
        site(app, auth="none", bind=host)
    check_bind(host, "tokens")
    check_bind("127.0.0.1", "none")
    with pytest.raises(SettingsError, match="auth is"):
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
        "none",
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
    """A site without authentication, mounted somewhere: the address is not known."""
    return Visitors(site_app, auth="none", hosts=["Box.example"])


async def test_without_authentication_whoever_is_on_this_machine_may_do_everything(
    neighbours: Visitors,
) -> None:
    assert (await neighbours.done("GET", "/api/v1/me"))["role"] == "admin"
    await neighbours.done("POST", RUNS, json=START)


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
    """Also where no header says where it is from, as an old browser's."""
    headers = {} if kind is None else {"Content-Type": kind}
    body = b'{"name": "greet", "input": {"name": "Ada"}}' if kind else b""
    answer = await neighbours.ask("POST", RUNS, headers=headers, content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")


async def test_with_a_token_nothing_at_all_may_be_sent(visitors: Visitors) -> None:
    run = await visitors.start("greet", input={"name": "Ada"})
    await visitors.done("POST", f"{RUNS}/{run}/cancel", content=b"")
