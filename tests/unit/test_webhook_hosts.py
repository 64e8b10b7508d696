"""Allowed hosts of webhooks, and protection against requests to the worker's own network (SSRF)."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from rota import Settings
from rota.errors import SettingsError, WebhookRefused
from rota.model.webhook_hosts import WebhookHosts, is_public

LISTED = WebhookHosts.parse(
    "hooks.example.com, other.example.com:8443, http://plain.example.com:8080, 10.0.0.5:9000,"
    " http://10.0.0.6, [fd00::7]:9000, localhost:7000, 127.0.0.1:7001, [::1]:7002"
)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com",
        "https://hooks.example.com/a/b?c=d",
        "https://hooks.example.com:443/",
        "https://HOOKS.Example.com/",
        "https://other.example.com:8443/",
        "http://plain.example.com:8080/",
        "https://plain.example.com:8080/",
        "https://10.0.0.5:9000/",
        "http://10.0.0.6/",
        "https://10.0.0.6/",
        "https://[fd00::7]:9000/",
        "https://[fd00:0:0::0:7]:9000/",
        "http://localhost:7000/",
        "https://localhost:7000/",
        "http://127.0.0.1:7001/",
        "http://[::1]:7002/",
    ],
)
def test_webhook_url_of_listed_host_is_allowed(url: str) -> None:
    LISTED.target_for(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.com/", "not one of"),
        ("https://evil.hooks.example.com/", "not one of"),
        ("https://hooks.example.com.evil.com/", "not one of"),
        ("https://hooks.example.com./", "not one of"),
        ("https://hooks.example.com:8443/", "not one of"),
        ("https://other.example.com/", "not one of"),
        ("http://hooks.example.com:443/", "for https only; use that, or list http://hooks"),
        ("http://hooks.example.com/", "not one of"),
        ("http://plain.example.com/", "not one of"),
        ("https://localhost/", "not one of"),
        ("http://127.0.0.1/", "not one of"),
        ("http://[::1]/", "not one of"),
        ("http://2130706433:7001/", "not one of"),
        ("http://0177.0.0.1:7001/", "not one of"),
        ("http://0x7f000001:7001/", "not one of"),
        ("http://127.1:7001/", "not one of"),
        ("http://[::ffff:127.0.0.1]:7001/", "not one of"),
        ("http://[::ffff:169.254.169.254]/", "not one of"),
        ("http://169.254.169.254/latest/meta-data/", "not one of"),
        ("http://[fe80::1%25eth0]/", "cannot be read"),
        ("https://hooks.example.com@evil.com/", "not contain a name and password"),
        ("https://u:p@hooks.example.com/", "not contain a name and password"),
        ("https://hooks.example.com\\@evil.com/", "without blanks or backslashes"),
        ("https://hooks.example.com/\r\nX: y", "without blanks"),
        ("https://hooks.exa\tmple.com/", "without blanks"),
        ("https://höoks.example.com/", "punycode"),
        ("https://hooks.example.com:99999/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
        ("ftp://hooks.example.com/", "is like https://"),
        ("file:///etc/passwd", "is like https://"),
        ("//hooks.example.com/", "is like https://"),
        ("hooks.example.com", "is like https://"),
        ("", "is like https://"),
    ],
)
def test_webhook_url_not_exactly_listed_is_refused(url: str, reason: str) -> None:
    with pytest.raises(WebhookRefused, match=reason):
        LISTED.target_for(url)


def test_webhook_without_host_list_is_refused() -> None:
    with pytest.raises(WebhookRefused, match="webhooks are off: set ROTA_WEBHOOK_HOSTS"):
        WebhookHosts.parse("").target_for("https://hooks.example.com/")


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "93.184.216.34", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
)
def test_webhook_host_with_public_address_is_allowed(address: str) -> None:
    LISTED.target_for("https://hooks.example.com/").check_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.1",
        "0.0.0.0",
        "10.0.0.5",  # allowed only as a literal address
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "168.63.129.16",
        "192.0.0.192",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:168.63.129.16",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b::10.0.0.1",
        "2002:a9fe:a9fe::1",
        "2002:7f00:1::",
        "2001:0:5ef5:79fd:0:0:80ff:fffe",  # Teredo address of 127.0.0.1
    ],
)
def test_webhook_host_with_private_address_is_refused(address: str) -> None:
    with pytest.raises(WebhookRefused, match="not a public address"):
        LISTED.target_for("https://hooks.example.com/").check_address(address)


def test_webhook_listed_address_allows_only_that_address() -> None:
    LISTED.target_for("https://10.0.0.5:9000/").check_address("10.0.0.5")
    LISTED.target_for("http://localhost:7000/").check_address("::1")

    for url, address in (
        ("https://10.0.0.5:9000/", "10.0.0.6"),
        ("http://localhost:7000/", "10.0.0.5"),
        ("http://localhost:7000/", "8.8.8.8"),
    ):
        with pytest.raises(WebhookRefused):
            LISTED.target_for(url).check_address(address)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://hooks.example.com", "hooks.example.com", "/"),
        ("https://hooks.example.com:443/x?y=1#z", "hooks.example.com", "/x?y=1"),
        ("https://other.example.com:8443?y", "other.example.com:8443", "/?y"),
        ("http://[::1]:7002/", "[::1]:7002", "/"),
    ],
)
def test_webhook_target_has_authority_and_path_of_url(url: str, authority: str, path: str) -> None:
    place = LISTED.target_for(url)

    assert (place.authority, place.path) == (authority, path)


@pytest.mark.parametrize(
    "entry",
    [
        "*",
        "*.example.com",
        "https://hooks.example.com/path",
        "ftp://hooks.example.com",
        "user@hooks.example.com",
        "hooks.example.com?x",
        "hooks example.com",
        "höoks.example.com",
        "hooks.example.com:port",
        "::1",
        "http://",
    ],
)
def test_webhook_hosts_invalid_entry_error_names_the_setting(entry: str) -> None:
    with pytest.raises(SettingsError, match="ROTA_WEBHOOK_HOSTS"):
        Settings.read({"ROTA_WEBHOOK_HOSTS": f"good.example.com, {entry}"})


def test_webhook_secret_is_absent_from_repr() -> None:
    settings = Settings.read({"ROTA_WEBHOOK_SECRET": "hunter2"})

    assert settings.webhook_secret == "hunter2"
    assert "hunter2" not in repr(settings)


def test_is_public_checks_address_embedded_in_6to4() -> None:
    assert is_public(ip_address("1.1.1.1"))
    assert not is_public(ip_address("2002:0a00:0001::"))
