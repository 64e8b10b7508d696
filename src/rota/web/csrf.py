"""Protection against cross-site requests, and checks of the host name of a local server.

A page of another site can make a browser send a form, or a request whose response the page cannot read, to
any server. It cannot forge `Sec-Fetch-Site` or `Origin`, send JSON without a CORS preflight, or know a
token.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request

from rota.web.responses import HttpError

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
JSON_TYPE = "application/json"


def check_origin(request: Request) -> None:
    """Raise HttpError for a state-changing request from another origin.

    `Sec-Fetch-Site` decides; for browsers that do not send it, `Origin` does.
    """
    if request.method in SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_cross_origin = site not in ("same-origin", "none")
    else:
        is_cross_origin = origin is not None and not _is_same_origin(
            origin, request.headers.get("host", "")
        )
    if is_cross_origin:
        raise HttpError(
            403, "cross_origin", "requests from a page of another origin may not change anything"
        )


def check_content_type(request: Request) -> None:
    """Raise HttpError for a state-changing request that any page could send.

    The content type must be JSON. A request without a body needs none if it has an `Authorization` header.
    """
    if request.method in SAFE_METHODS:
        return
    content_type = request.headers.get("content-type")
    if content_type is None and not _has_body(request) and "authorization" in request.headers:
        return
    if (content_type or "").partition(";")[0].strip().lower() != JSON_TYPE:
        raise HttpError(
            415,
            "not_json",
            f"send Content-Type: {JSON_TYPE}; requests that change something accept no other type",
        )


def _is_same_origin(origin: str, host: str) -> bool:
    # The scheme is not compared: a proxy that terminates TLS forwards plain HTTP.
    return bool(host) and origin.partition("://")[2].lower() == host.lower()


def _has_body(request: Request) -> bool:
    return (
        request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    )


def is_loopback(address: str | None) -> bool:
    """True if only this machine can reach a server bound to `address`."""
    name = (address or "").strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def check_host(request: Request, hosts: frozenset[str]) -> None:
    """Raise HttpError for a Host header that does not name this machine.

    This stops DNS rebinding: another site can point its own host name at 127.0.0.1.
    """
    try:
        name = urlsplit("//" + request.headers.get("host", "")).hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name) and name not in hosts:
        raise HttpError(
            403,
            "unknown_host",
            "this site is served on this machine only; use localhost as its host name, "
            f"not {name or 'no name'!r}",
        )
