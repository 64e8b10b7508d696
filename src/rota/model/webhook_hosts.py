"""Allowed targets of webhooks: hosts by name, and the addresses that these hosts may have.

Users choose the URL of a webhook, and the worker that sends it runs inside your network. Only listed
targets are allowed: scheme, host and port of the URL must equal those of an entry. The addresses of the
host are checked as well: they must be public, whichever server resolves the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

import msgspec

from rota.errors import SettingsError, WebhookRefused

Address = IPv4Address | IPv6Address

DEFAULT_PORTS = {"https": 443, "http": 80}

_INVALID_CHARACTERS = re.compile(r"[^\x21-\x7e]|\\")
"""Characters that a URL must not contain, because URL parsers disagree about them."""

_NAT64 = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = IPv6Network("::/96")

_CLOUD_METADATA = {IPv4Address("168.63.129.16"), IPv4Address("192.0.0.192")}
"""Metadata services of some clouds, which provide secrets on addresses that look public."""


class WebhookTarget(msgspec.Struct, frozen=True):
    """Target of one webhook."""

    is_https: bool
    host: str
    port: int
    path: str
    address: Address | None
    """Address of the host, if the host is given as an address."""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default_port = self.port == DEFAULT_PORTS["https" if self.is_https else "http"]
        return host if is_default_port else f"{host}:{self.port}"

    def check_address(self, address: str) -> Address:
        """Return the parsed address; raise WebhookRefused if the host must not have it."""
        found = ip_address(address.partition("%")[0])
        if self.address is not None:
            is_allowed = found == self.address
        elif self.host == "localhost":
            is_allowed = found.is_loopback
        else:
            is_allowed = is_public(found)
        if not is_allowed:
            raise WebhookRefused(
                f"{self.host} is at {found}, which is not a public address, so no request is sent; to "
                "allow it, list the address itself in ROTA_WEBHOOK_HOSTS"
            )
        return found


class AllowedHost(msgspec.Struct, frozen=True):
    host: str
    port: int | None
    allows_http: bool
    """True if plain http is allowed."""

    def allows(self, scheme: str, host: str, port: int) -> bool:
        return (
            host == self.host
            and port == (self.port or DEFAULT_PORTS[scheme])
            and (scheme == "https" or self.allows_http)
        )


class WebhookHosts(msgspec.Struct, frozen=True):
    """Parsed `ROTA_WEBHOOK_HOSTS`: hooks.example.com, other.example.com:8443, http://10.0.0.5:8080,
    localhost."""

    entries: tuple[AllowedHost, ...]

    @classmethod
    def parse(cls, text: str) -> WebhookHosts:
        return cls(tuple(_parse_entry(each.strip()) for each in text.split(",") if each.strip()))

    def target_for(self, url: str) -> WebhookTarget:
        """Return the target of this URL; raise WebhookRefused if it is not allowed."""
        if not self.entries:
            raise WebhookRefused(
                "webhooks are off: set ROTA_WEBHOOK_HOSTS to the hosts they may go to, such as "
                "hooks.example.com"
            )
        parts, host, port = _split_url(url)
        if not any(each.allows(parts.scheme, host, port) for each in self.entries):
            raise WebhookRefused(self._not_listed_message(parts.scheme, host, port))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return WebhookTarget(parts.scheme == "https", host, port, path, _parse_address(host))

    def _not_listed_message(self, scheme: str, host: str, port: int) -> str:
        if scheme == "http" and any(each.allows("https", host, port) for each in self.entries):
            return f"{host} is listed in ROTA_WEBHOOK_HOSTS for https only; use that, or list http://{host}"
        return f"{host}:{port} is not one of ROTA_WEBHOOK_HOSTS, so nothing is sent there"


def _split_url(url: str) -> tuple[SplitResult, str, int]:
    """Return the parts of a webhook's URL, its host and its port. Raise WebhookRefused if it is invalid."""
    if _INVALID_CHARACTERS.search(url):
        raise WebhookRefused(
            "a webhook's URL is written in ASCII without blanks or backslashes: percent-encode "
            "other characters in the path, and write the host in punycode (xn--…)"
        )
    try:
        parts = urlsplit(url)
        host, port = _normalized_host(parts), parts.port
    except ValueError as error:
        raise WebhookRefused(f"the webhook's URL cannot be read: {error}") from None
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise WebhookRefused("a webhook's URL is like https://hooks.example.com/path")
    if parts.username is not None or parts.password is not None:
        raise WebhookRefused(
            "a webhook's URL must not contain a name and password; send credentials in a header"
        )
    return parts, host, port or DEFAULT_PORTS[parts.scheme]


def is_public(address: Address) -> bool:
    """True if the address, and every address embedded in it, is reachable on the public internet."""
    return all(
        each.is_global
        and not (each.is_multicast or each.is_reserved or each.is_unspecified)
        and each not in _CLOUD_METADATA
        for each in _embedded_addresses(address)
    )


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """Yield the IPv4 addresses that an IPv6 address translates to, or else the address itself."""
    if isinstance(address, IPv4Address):
        yield address
    elif address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64 or address in _IPV4_COMPATIBLE:
        yield IPv4Address(address.packed[-4:])
    else:
        yield address
        if address.is_site_local:
            yield IPv6Address("::")


def _parse_entry(text: str) -> AllowedHost:
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = _normalized_host(parts), parts.port
    except ValueError as error:
        raise SettingsError(
            f"ROTA_WEBHOOK_HOSTS: {text!r} cannot be read: {error}; an address of version 6 goes into "
            "brackets, [::1]:8080"
        ) from None
    if _INVALID_CHARACTERS.search(text) or not _is_only_host(parts, host):
        raise SettingsError(
            f"ROTA_WEBHOOK_HOSTS: {text!r} is no host; list names to the letter, separated by commas, such "
            "as hooks.example.com, hooks.example.com:8443 or http://10.0.0.5:8080"
        )
    address = _parse_address(host)
    is_loopback = host == "localhost" or (address is not None and address.is_loopback)
    return AllowedHost(host, port, parts.scheme == "http" or is_loopback)


def _is_only_host(parts: SplitResult, host: str) -> bool:
    """True if an entry consists of a host, with or without scheme and port."""
    other_parts = (parts.username, parts.password, parts.query or None, parts.fragment or None)
    return (
        bool(host)
        and "*" not in host
        and parts.scheme in ("", *DEFAULT_PORTS)
        and parts.path in ("", "/")
        and other_parts == (None, None, None, None)
    )


def _normalized_host(parts: SplitResult) -> str:
    """Return the host in the form used for comparison."""
    host = parts.hostname or ""
    if "%" in host:
        raise ValueError(f"{host!r} is no host's name")
    address = _parse_address(host)
    return host if address is None else str(address)


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
