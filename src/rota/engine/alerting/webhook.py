"""Webhook requests: one request to a listed host, and the meaning of its answer.

The name is resolved once, every address is checked, and the connection goes to one of the checked
addresses under the host's own name. So a name that resolves differently a moment later has no effect.
Redirects are not followed, only the status of the answer is kept, and the whole request has a time
limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Any, TypeVar

from rota.errors import ArgumentError, RetryLater, WebhookFailed, WebhookRefused
from rota.model import codec
from rota.model.webhook_hosts import WebhookHosts, WebhookTarget

MAX_RESPONSE_BYTES = 64 * 1024
"""Bytes that are read of an answer: its status line and headers."""

MAX_TIMEOUT_SECONDS = 60.0
"""Longest timeout of a webhook in seconds."""

MAX_RETRY_AFTER_SECONDS = 3600
"""Longest delay in seconds that a receiver may request by Retry-After."""

METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
_RESERVED_HEADERS = (
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "expect",
    "idempotency-key",
)

Resolve = Callable[[str, int], list[str]]
S = TypeVar("S", bound=socket.socket)


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """Request as configured by a schedule."""

    url: str
    body: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ArgumentError(f"method is one of {', '.join(METHODS)}, not {self.method!r}")
        if not 0 < self.timeout <= MAX_TIMEOUT_SECONDS:
            raise ArgumentError(
                f"timeout is up to {MAX_TIMEOUT_SECONDS:g} s for a webhook, not {self.timeout:g}"
            )
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise ArgumentError(f"{name!r:.60} cannot be a header: plain ASCII on one line")
            if name.lower() in _RESERVED_HEADERS or name.lower().startswith("rota-"):
                raise ArgumentError(f"header {name!r} is Rota's own; leave it out")


def resolve(host: str, port: int) -> list[str]:
    """Return all addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def signature(secret: str, now: datetime, body: bytes) -> str:
    """Return `t=1700000000,v1=…`: the time of sending, and the HMAC of time and body under the secret."""
    at = str(int(now.timestamp()))
    digest = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256)
    return f"t={at},v1={digest.hexdigest()}"


async def send(
    request: WebhookRequest,
    hosts: WebhookHosts,
    *,
    key: int | str,
    now: datetime,
    secret: str = "",
    resolve: Resolve = resolve,
) -> int:
    """Send a request and return its status, which is 2xx.

    `key` is the same for every attempt. Raise WebhookRefused if a retry would not help, else
    WebhookFailed or RetryLater.
    """
    target = hosts.target_for(request.url)
    exchange = _HttpExchange(target, request, _headers(target, request, key, now, secret), resolve)
    thread = ThreadPoolExecutor(1, thread_name_prefix="rota webhook")
    try:
        async with asyncio.timeout(request.timeout):
            status, retry_after = await asyncio.get_running_loop().run_in_executor(
                thread, exchange.run
            )
    except TimeoutError:
        raise WebhookFailed(f"{target.host} did not answer within {request.timeout:g} s") from None
    finally:
        exchange.close()
        thread.shutdown(wait=False)
    if 200 <= status < 300:
        return status
    if status in (429, 503) and retry_after is not None:
        raise RetryLater(
            min(retry_after, MAX_RETRY_AFTER_SECONDS), f"{target.host} answered {status}"
        )
    if 300 <= status < 400:
        raise WebhookRefused(
            f"{target.host} answered {status}, a redirect, which is not followed; send it to where it leads"
        )
    if 400 <= status < 500 and status not in (408, 429):
        raise WebhookRefused(f"{target.host} answered {status}: it does not want this webhook")
    raise WebhookFailed(f"{target.host} answered {status}")


def _content(request: WebhookRequest) -> bytes:
    if request.body is None:
        return b""
    return codec.encode(request.body, "the webhook's body", codec.MAX_JSON_BYTES).encode()


def _headers(
    target: WebhookTarget, request: WebhookRequest, key: int | str, now: datetime, secret: str
) -> dict[str, str]:
    headers = {
        **({} if request.body is None else {"Content-Type": "application/json"}),
        "User-Agent": f"rota/{version('pgrota')}",
        **request.headers,
        "Host": target.authority,
        "Connection": "close",
        "Idempotency-Key": str(key),
    }
    if secret:
        headers["Rota-Signature"] = signature(secret, now, _content(request))
    return headers


class _HttpExchange:
    """Request and answer in a thread. `close` ends it from outside."""

    def __init__(
        self,
        target: WebhookTarget,
        request: WebhookRequest,
        headers: Mapping[str, str],
        resolve: Resolve,
    ) -> None:
        self._target = target
        self._request = request
        self._headers = headers
        self._resolve = resolve
        self._socket: socket.socket | None = None
        self._closed = False

    def run(self) -> tuple[int, int | None]:
        """Return the status, and the seconds of the Retry-After header if there is one."""
        target, request = self._target, self._request
        try:
            sock = self._connect()
            connection = http.client.HTTPConnection(
                target.host, target.port, timeout=request.timeout
            )
            connection.sock = sock
            connection.response_class = _BoundedResponse
            connection.request(request.method, target.path, _content(request), dict(self._headers))
            response = connection.getresponse()
            retry_after = response.headers.get("Retry-After", "")
            return response.status, int(retry_after) if re.fullmatch(
                r"\d{1,6}", retry_after
            ) else None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise WebhookFailed(
                f"the request to {target.host} failed: {type(error).__name__}: {error}"
            ) from None
        finally:
            self.close()

    def _connect(self) -> socket.socket:
        """Connect to one of the checked addresses, without resolving the name again."""
        target = self._target
        try:
            found = (
                [str(target.address)] if target.address else self._resolve(target.host, target.port)
            )
        except (OSError, UnicodeError):
            raise WebhookFailed(
                f"{target.host} has no address: the name cannot be resolved"
            ) from None
        addresses = [str(target.check_address(each)) for each in found]
        last_error: OSError = OSError("it has no address")
        for address in addresses:
            if self._closed:
                raise OSError("the request was abandoned")
            try:
                return self._connect_to(address)
            except ssl.SSLError:
                raise
            except OSError as error:
                last_error = error
        raise last_error

    def _connect_to(self, address: str) -> socket.socket:
        sock = self._track_socket(
            socket.create_connection((address, self._target.port), self._request.timeout)
        )
        if self._target.is_https:
            sock = self._track_socket(
                _context().wrap_socket(
                    sock, server_hostname=self._target.host, do_handshake_on_connect=False
                )
            )
            sock.do_handshake()
        return sock

    def _track_socket(self, sock: S) -> S:
        """Register a socket for `close`. Raise OSError if the exchange is closed already."""
        self._socket = sock
        if self._closed:
            sock.close()
            raise OSError("the request was abandoned")
        return sock

    def close(self) -> None:
        self._closed = True
        if (sock := self._socket) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    """Return a context with the system's certificates, cached because loading them is slow."""
    return ssl.create_default_context()


class _BoundedResponse(http.client.HTTPResponse):
    """Response with a head of limited size and a body that is not read."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = _BoundedReader(self.fp, MAX_RESPONSE_BYTES)  # type: ignore[assignment]


class _BoundedReader:
    def __init__(self, source: Any, limit: int) -> None:
        self._source = source
        self._remaining_bytes = limit

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._source.readline(min(limit, self._remaining_bytes + 1))
        self._remaining_bytes -= len(line)
        if self._remaining_bytes < 0:
            raise http.client.HTTPException(
                f"its answer's head is longer than {MAX_RESPONSE_BYTES} bytes"
            )
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
