"""Sends webhooks: one request to a host that is listed, and what its answer means.

The name is looked up once, every address that comes out is judged, and the connection goes to one of those
very addresses, under the host's own name: a name that means something else a moment later changes nothing.
Redirects are not followed, nothing of the answer is kept but its status, and all of it has a time limit.
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
from rota.model.hosts import Hosts, Place

ANSWER_LIMIT = 64 * 1024
"""Bytes of an answer, as far as it is read: its status and its headers."""

LONGEST = 60.0
"""Seconds that a webhook may take."""

LONGEST_PAUSE = 3600
"""Seconds that a receiver may ask us to wait."""

METHODS = ("POST", "PUT", "PATCH", "GET", "DELETE")

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_OURS = ("host", "content-length", "transfer-encoding", "connection", "expect", "idempotency-key")

Resolve = Callable[[str, int], list[str]]
S = TypeVar("S", bound=socket.socket)


@dataclass(frozen=True, slots=True)
class Hook:
    """A request, as a schedule's config says it."""

    url: str
    body: Any = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ArgumentError(f"method is one of {', '.join(METHODS)}, not {self.method!r}")
        if not 0 < self.timeout <= LONGEST:
            raise ArgumentError(
                f"timeout is up to {LONGEST:g} s for a webhook, not {self.timeout:g}"
            )
        for name, value in self.headers.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise ArgumentError(f"{name!r:.60} cannot be a header: plain ASCII on one line")
            if name.lower() in _OURS or name.lower().startswith("rota-"):
                raise ArgumentError(f"header {name!r} is Rota's own; leave it out")


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def signature(secret: str, now: datetime, body: bytes) -> str:
    """`t=1700000000,v1=…`: when it was sent, and that whoever knows the secret has sent this then."""
    at = str(int(now.timestamp()))
    digest = hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256)
    return f"t={at},v1={digest.hexdigest()}"


async def send(
    hook: Hook,
    hosts: Hosts,
    *,
    key: int | str,
    now: datetime,
    secret: str = "",
    resolve: Resolve = resolve,
) -> int:
    """Send it; `key` is the same if it is sent again. Answers the status, which is 2xx. Raises
    WebhookRefused for what another try would not change, else WebhookFailed or RetryLater."""
    place = hosts.place(hook.url)
    exchange = _Exchange(place, hook, _headers(place, hook, key, now, secret), resolve)
    thread = ThreadPoolExecutor(1, thread_name_prefix="rota webhook")
    try:
        async with asyncio.timeout(hook.timeout):
            status, pause = await asyncio.get_running_loop().run_in_executor(thread, exchange.make)
    except TimeoutError:
        raise WebhookFailed(f"{place.host} did not answer within {hook.timeout:g} s") from None
    finally:
        exchange.hang_up()
        thread.shutdown(wait=False)
    if 200 <= status < 300:
        return status
    if status in (429, 503) and pause is not None:
        raise RetryLater(min(pause, LONGEST_PAUSE), f"{place.host} answered {status}")
    if 300 <= status < 400:
        raise WebhookRefused(
            f"{place.host} answered {status}, a redirect, which is not followed; send it to where it leads"
        )
    if 400 <= status < 500 and status not in (408, 429):
        raise WebhookRefused(f"{place.host} answered {status}: it does not want this webhook")
    raise WebhookFailed(f"{place.host} answered {status}")


def _content(hook: Hook) -> bytes:
    if hook.body is None:
        return b""
    return codec.encode(hook.body, "the webhook's body", codec.LARGEST).encode()


def _headers(
    place: Place, hook: Hook, key: int | str, now: datetime, secret: str
) -> dict[str, str]:
    headers = {
        **({} if hook.body is None else {"Content-Type": "application/json"}),
        "User-Agent": f"rota/{version('rota')}",
        **hook.headers,
        "Host": place.authority,
        "Connection": "close",
        "Idempotency-Key": str(key),
    }
    if secret:
        headers["Rota-Signature"] = signature(secret, now, _content(hook))
    return headers


class _Exchange:
    """One request and its answer, in a thread; whoever waits for it can hang up."""

    def __init__(
        self, place: Place, hook: Hook, headers: Mapping[str, str], resolve: Resolve
    ) -> None:
        self._place = place
        self._hook = hook
        self._headers = headers
        self._resolve = resolve
        self._socket: socket.socket | None = None
        self._over = False

    def make(self) -> tuple[int, int | None]:
        """The status, and after how many seconds to come again, if it says so."""
        place, hook = self._place, self._hook
        try:
            sock = self._connect()
            connection = http.client.HTTPConnection(place.host, place.port, timeout=hook.timeout)
            connection.sock = sock
            connection.response_class = _Answer
            connection.request(hook.method, place.path, _content(hook), dict(self._headers))
            answer = connection.getresponse()
            pause = answer.headers.get("Retry-After", "")
            return answer.status, int(pause) if re.fullmatch(r"\d{1,6}", pause) else None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise WebhookFailed(
                f"{place.host} could not be told: {type(error).__name__}: {error}"
            ) from None
        finally:
            self.hang_up()

    def _connect(self) -> socket.socket:
        """To one of the addresses that were judged, whatever the name means by then."""
        place = self._place
        try:
            found = [str(place.address)] if place.address else self._resolve(place.host, place.port)
        except (OSError, UnicodeError):
            raise WebhookFailed(f"{place.host} has no address: nobody knows that name") from None
        addresses = [str(place.check(each)) for each in found]
        trouble: OSError = OSError("it has no address")
        for address in addresses:
            if self._over:
                raise OSError("nobody waits for it any more")
            try:
                return self._reach(address)
            except ssl.SSLError:
                raise
            except OSError as error:
                trouble = error
        raise trouble

    def _reach(self, address: str) -> socket.socket:
        sock = self._hold(socket.create_connection((address, self._place.port), self._hook.timeout))
        if self._place.secure:
            sock = self._hold(
                _context().wrap_socket(
                    sock, server_hostname=self._place.host, do_handshake_on_connect=False
                )
            )
            sock.do_handshake()
        return sock

    def _hold(self, sock: S) -> S:
        """From here on whoever hangs up ends it; one who has, ends it here."""
        self._socket = sock
        if self._over:
            sock.close()
            raise OSError("nobody waits for it any more")
        return sock

    def hang_up(self) -> None:
        self._over = True
        if (sock := self._socket) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    """The system's certificates. It takes its time to load them."""
    return ssl.create_default_context()


class _Answer(http.client.HTTPResponse):
    """An answer whose head is as long as it may be, and whose body is nobody's business."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = _Limited(self.fp, ANSWER_LIMIT)  # type: ignore[assignment]


class _Limited:
    def __init__(self, source: Any, limit: int) -> None:
        self._source = source
        self._left = limit

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self._source.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.HTTPException(
                f"its answer's head is longer than {ANSWER_LIMIT} bytes"
            )
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)
