"""A dashboard with local access behind a proxy on the same machine admits none of the proxy's clients."""

from __future__ import annotations

import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.balancer import haproxy_path
from support.server_process import ServerProcess, free_port, serving, wait_until

CONFIGURATION = """
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen web
    bind 127.0.0.1:{port}
    server dashboard 127.0.0.1:{dashboard}
"""


@pytest.fixture
def dashboard(rota_dsn: str, tmp_path: Path) -> Iterator[ServerProcess]:
    words = ["rota", "dashboard", "-p", "{port}", "--auth", "local"]
    with serving(words, rota_dsn, tmp_path) as instance:
        yield instance


def through_proxy(port: int, method: str, path: str, body: object = None) -> int:
    """Send a request as an attacker does, in the name of this machine; return the status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Host": "localhost", "Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body), headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_local_access_through_haproxy_is_refused(dashboard: ServerProcess, tmp_path: Path) -> None:
    program = haproxy_path()
    if program is None:
        pytest.skip("needs HAProxy: apt install haproxy")
    port = free_port()
    file = tmp_path / "haproxy.cfg"
    file.write_text(CONFIGURATION.format(port=port, dashboard=dashboard.port))
    proxy = subprocess.Popen([program, "-db", "-q", "-f", str(file)])
    try:
        wait_until(lambda: through_proxy(port, "GET", "/health/live") == 200, dashboard)
        for method, path, body in (
            ("GET", "/api/v1/runs", None),
            ("GET", "/metrics", None),
            ("POST", "/api/v1/tokens", {"name": "eve", "role": "admin"}),
        ):
            assert through_proxy(port, method, path, body) == 401, path
    finally:
        proxy.terminate()
        proxy.wait()
    assert "sign in at http://127.0.0.1:" in dashboard.said
