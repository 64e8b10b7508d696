"""Listening sockets. This module imports no web framework."""

from __future__ import annotations

import socket

BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket that several processes can share."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.listen(BACKLOG)
    bound.set_inheritable(True)
    return bound


def base_url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
