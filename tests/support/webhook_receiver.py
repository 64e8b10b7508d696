"""HTTP server that receives webhooks, with answers that a test configures."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.places import SUPPORT

CERTIFICATE = SUPPORT / "tls" / "localhost.pem"
"""Self-signed certificate of `localhost`, with its key."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receiver:
    port: int
    requests: list[Request] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """Statuses of the answers, in order; 204 when the list is empty."""
    headers: dict[str, str] = field(default_factory=dict)
    head: bytes | None = None
    """Raw bytes to send instead of an answer."""
    names: list[str | None] = field(default_factory=list)
    """Server names (SNI) that clients sent in the TLS handshake."""
    hold: threading.Event | None = None
    """If set, answers are held back until this event."""
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a waiting client has closed its connection."""


@contextmanager
def receiving(*, tls: bool = False) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            receiver.requests.append(
                Request(self.command, self.path, dict(self.headers), self.rfile.read(size))
            )
            if receiver.hold is not None:
                self._wait(receiver.hold)
                return
            if receiver.head is not None:
                self.wfile.write(receiver.head)
                return
            self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.end_headers()

        def _wait(self, hold: threading.Event) -> None:
            self.connection.settimeout(0.05)
            while not hold.is_set():
                try:
                    if not self.connection.recv(1):
                        receiver.left.set()
                        return
                except TimeoutError:
                    self.wfile.write(b"H")  # one byte at a time, each within the read timeout
                except OSError:
                    receiver.left.set()
                    return

        do_POST = do_PUT = do_PATCH = do_GET = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_address[1])
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        context.sni_callback = lambda _, name, __: receiver.names.append(name)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        if receiver.hold is not None:
            receiver.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def unused_port() -> int:
    """Return a port on which no server listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
