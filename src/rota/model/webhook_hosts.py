"""Where webhooks may go: hosts that are allowed by name, and the addresses those may have.

A webhook's address is somebody's wish, and the worker that sends it sits inside your network. So nothing
is allowed that is not listed: the scheme, the host and the port of a URL are those of an entry, to the
letter. What a name stands for is looked at, too: it must be out in the world, whoever answers for the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

from rota.errors import SettingsError, WebhookRefused

Address = IPv4Address | IPv6Address

DEFAULT_PORTS = {"https": 443, "http": 80}

_INVALID_CHARACTERS = re.compile(r"[^\x21-\x7e]|\\")
"""What has no place in a URL that goes over the wire, and is read by everyone in a way of his own."""

_NAT64 = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = IPv6Network("::/96")

_CLOUD_METADATA = {IPv4Address("168.63.129.16"), IPv4Address("192.0.0.192")}
"""Where some clouds tell a machine its secrets, though it looks like the world."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where one webhook goes."""

    is_https: bool
    host: str
    port: int
    path: str
    address: Address | None
    """What the host is, if it is an address."""

    @property
    def authority(self) -> str:
        """As it is said to the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default_port = self.port == DEFAULT_PORTS["https" if self.is_https else "http"]
        return host if is_default_port else f"{host}:{self.port}"

    def check_address(self, address: str) -> Address:
        """Refuse an address that the host must not have."""
        found = ip_address(address.partition("%")[0])
        if self.address is not None:
            is_allowed = found == self.address
        elif self.host == "localhost":
            is_allowed = found.is_loopback
        else:
            is_allowed = is_public(found)
        if not is_allowed:
            raise WebhookRefused(
                f"{self.host} is at {found}, which is not out in the world, so nothing is sent there; if "
                "that is what you want, list the address itself in ROTA_WEBHOOK_HOSTS"
            )
        return found


@dataclass(frozen=True, slots=True)
class AllowedHost:
    host: str
    port: int | None
    allows_http: bool
    """Whether http will do."""

    def allows(self, scheme: str, host: str, port: int) -> bool:
        return (
            host == self.host
            and port == (self.port or DEFAULT_PORTS[scheme])
            and (scheme == "https" or self.allows_http)
        )


@dataclass(frozen=True, slots=True)
class WebhookHosts:
    """`ROTA_WEBHOOK_HOSTS`: hooks.example.com, other.example.com:8443, http://10.0.0.5:8080, localhost."""

    entries: tuple[AllowedHost, ...]

    @classmethod
    def parse(cls, text: str) -> WebhookHosts:
        return cls(tuple(_parse_entry(each.strip()) for each in text.split(",") if each.strip()))

    def target_for(self, url: str) -> WebhookTarget:
        """Where this URL leads, if that is allowed."""
        if not self.entries:
            raise WebhookRefused(
                "webhooks are off: set ROTA_WEBHOOK_HOSTS to the hosts they may go to, such as "
                "hooks.example.com"
            )
        if _INVALID_CHARACTERS.search(url):
            raise WebhookRefused(
                "a webhook's URL is written in ASCII without blanks or backslashes: percent-encode what "
                "is not, and a name's letters in punycode (xn--…)"
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
                "a webhook's URL has no name and password in it; say who you are in a header"
            )
        port = port or DEFAULT_PORTS[parts.scheme]
        if not any(each.allows(parts.scheme, host, port) for each in self.entries):
            raise WebhookRefused(self._not_listed_message(parts.scheme, host, port))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return WebhookTarget(parts.scheme == "https", host, port, path, _parse_address(host))

    def _not_listed_message(self, scheme: str, host: str, port: int) -> str:
        if scheme == "http" and any(each.allows("https", host, port) for each in self.entries):
            return f"{host} is listed in ROTA_WEBHOOK_HOSTS for https only; use that, or list http://{host}"
        return f"{host}:{port} is not one of ROTA_WEBHOOK_HOSTS, so nothing is sent there"


def is_public(address: Address) -> bool:
    """Whether it is one that anybody in the world can reach, and no other in disguise."""
    return all(
        each.is_global
        and not (each.is_multicast or each.is_reserved or each.is_unspecified)
        and each not in _CLOUD_METADATA
        for each in _embedded_addresses(address)
    )


def _embedded_addresses(address: Address) -> Iterator[Address]:
    """The addresses that stand for this one where networks meet, or itself."""
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
    other_parts = (parts.username, parts.password, parts.query or None, parts.fragment or None)
    if (
        _INVALID_CHARACTERS.search(text)
        or not host
        or "*" in host
        or parts.scheme not in ("", *DEFAULT_PORTS)
        or parts.path not in ("", "/")
        or other_parts != (None, None, None, None)
    ):
        raise SettingsError(
            f"ROTA_WEBHOOK_HOSTS: {text!r} is no host; list names to the letter, separated by commas, such "
            "as hooks.example.com, hooks.example.com:8443 or http://10.0.0.5:8080"
        )
    address = _parse_address(host)
    is_loopback = host == "localhost" or (address is not None and address.is_loopback)
    return AllowedHost(host, port, parts.scheme == "http" or is_loopback)


def _normalized_host(parts: SplitResult) -> str:
    """In the one form we compare."""
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
