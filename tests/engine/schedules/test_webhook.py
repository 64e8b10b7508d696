"""Webhooks: requests, refused targets, and the meaning of answers. The tests use real HTTP servers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Rota
from rota.engine.alerting import webhook
from rota.engine.alerting.webhook import WebhookRequest, send
from rota.errors import ArgumentError, RetryLater, WebhookFailed, WebhookRefused
from rota.model.webhook_hosts import WebhookHosts
from rota.testing import Harness
from support.webhook_receiver import CERTIFICATE, Receiver, receiving, unused_port

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


async def send_to_receiver(
    receiver: Receiver, hook: WebhookRequest | None = None, **how: Any
) -> int:
    """Send a webhook to a receiver on this machine, which is explicitly allowed."""
    hook = hook or WebhookRequest(
        f"http://localhost:{receiver.port}/hook?token=sesame", {"hello": "world"}
    )
    hosts = WebhookHosts.parse(f"localhost:{receiver.port}")
    return await send(hook, hosts, key=17, now=NOW, **how)


# Requests


async def test_webhook_request_has_json_body_and_idempotency_key(receiver: Receiver) -> None:
    url = f"http://localhost:{receiver.port}/hook?token=sesame"
    hook = WebhookRequest(url, {"hello": "wörld"}, headers={"X-Tenant": "acme"})

    assert await send_to_receiver(receiver, hook) == 204

    [request] = receiver.requests
    assert (request.method, request.path) == ("POST", "/hook?token=sesame")
    assert json.loads(request.body) == {"hello": "wörld"}
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Host"] == f"localhost:{receiver.port}"
    assert request.headers["Idempotency-Key"] == "17"
    assert request.headers["X-Tenant"] == "acme"
    assert "Rota-Signature" not in request.headers


async def test_webhook_without_body_sends_none(receiver: Receiver) -> None:
    url = f"http://localhost:{receiver.port}"

    await send_to_receiver(receiver, WebhookRequest(url, method="DELETE"))

    [request] = receiver.requests
    assert (request.method, request.path, request.body) == ("DELETE", "/", b"")


async def test_webhook_with_secret_signs_time_and_body(receiver: Receiver) -> None:
    await send_to_receiver(receiver, secret="sesame")

    [request] = receiver.requests
    parts = dict(part.split("=") for part in request.headers["Rota-Signature"].split(","))
    signed = parts["t"].encode() + b"." + request.body
    assert parts["v1"] == hmac.new(b"sesame", signed, hashlib.sha256).hexdigest()
    assert int(parts["t"]) == int(NOW.timestamp())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"method": "post"}, "method is one of"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 3600}, "up to 60 s"),
        ({"headers": {"X": "a\r\nY: b"}}, "cannot be a header"),
        ({"headers": {"X Y": "a"}}, "cannot be a header"),
        ({"headers": {"hOst": "evil"}}, "Rota's own"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "Rota's own"),
        ({"headers": {"Rota-Signature": "t=1"}}, "Rota's own"),
        ({"headers": {"Idempotency-Key": "1"}}, "Rota's own"),
    ],
)
def test_webhook_invalid_request_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        WebhookRequest("https://hooks.example.com/", **said)


# Refused targets


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["::1"],
        ["::ffff:169.254.169.254"],
        ["169.254.169.254"],
        ["10.1.2.3"],
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
    ],
    ids=",".join,
)
async def test_webhook_host_with_private_address_is_not_contacted(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(socket, "create_connection", lambda *where: tried.append(where))

    with pytest.raises(WebhookRefused, match="not a public address"):
        await send(
            WebhookRequest("https://hooks.example.com/"),
            WebhookHosts.parse("hooks.example.com"),
            key=1,
            now=NOW,
            resolve=lambda host, port: addresses,
        )
    assert tried == []


async def test_webhook_host_is_resolved_once_before_connecting(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    """The resolver would answer differently the second time, but it is called only once."""
    answers = [["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]]
    connected: list[Any] = []
    monkeypatch.setattr(
        socket,
        "create_connection",
        lambda where, *rest: _connect_to_receiver(where, receiver, connected, rest),
    )

    status = await send(
        WebhookRequest("http://hooks.example.com:8080/x"),
        WebhookHosts.parse("http://hooks.example.com:8080"),
        key=1,
        now=NOW,
        resolve=lambda host, port: answers.pop(0),
    )

    assert status == 204
    assert connected == [("93.184.216.34", 8080)]
    assert len(answers) == 2
    assert receiver.requests[0].headers["Host"] == "hooks.example.com:8080"


def _connect_to_receiver(
    where: tuple[str, int], receiver: Receiver, connected: list[Any], rest: tuple[Any, ...]
) -> socket.socket:
    """Connect to the receiver as if it had a public address."""
    connected.append(where)
    sock = socket.socket()
    sock.settimeout(rest[0])
    sock.connect(("127.0.0.1", receiver.port))
    return sock


async def test_webhook_redirect_is_not_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.statuses, receiver.headers = [302], {"Location": f"http://localhost:{other.port}/"}

        with pytest.raises(WebhookRefused, match="answered 302, a redirect, which is not followed"):
            await send_to_receiver(receiver)

        assert other.requests == []


async def test_webhook_error_names_host_and_no_secret(receiver: Receiver) -> None:
    receiver.statuses = [500]

    with pytest.raises(WebhookFailed) as caught:
        await send_to_receiver(receiver, secret="hunter2")

    assert str(caught.value) == "localhost answered 500"


# TLS and server names


async def test_webhook_tls_certificate_must_match_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    webhook._context.cache_clear()
    try:
        with receiving(tls=True) as receiver:
            hook = WebhookRequest(f"https://localhost:{receiver.port}/", {"a": 1})
            assert await send_to_receiver(receiver, hook) == 204
            assert receiver.names == ["localhost"]

            monkeypatch.setattr(
                socket,
                "create_connection",
                lambda where, *rest: _connect_to_receiver(where, receiver, [], rest),
            )
            with pytest.raises(WebhookFailed, match=r"certificate.*Hostname mismatch"):
                await send(
                    WebhookRequest("https://hooks.example.com/", {"a": 1}),
                    WebhookHosts.parse("hooks.example.com"),
                    key=1,
                    now=NOW,
                    resolve=lambda host, port: ["93.184.216.34"],
                )
            assert receiver.names == ["localhost", "hooks.example.com"]
            assert len(receiver.requests) == 1
    finally:
        webhook._context.cache_clear()


async def test_webhook_tls_self_signed_certificate_receives_nothing() -> None:
    webhook._context.cache_clear()
    with receiving(tls=True) as receiver:
        with pytest.raises(WebhookFailed, match="self-signed certificate"):
            await send_to_receiver(
                receiver, WebhookRequest(f"https://localhost:{receiver.port}/", {"a": 1})
            )

        assert receiver.requests == []


# Answers


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_webhook_2xx_answer_succeeds(receiver: Receiver, status: int) -> None:
    receiver.statuses = [status]

    assert await send_to_receiver(receiver) == status


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (301, {}, WebhookRefused),
        (400, {}, WebhookRefused),
        (404, {}, WebhookRefused),
        (410, {}, WebhookRefused),
        (408, {}, WebhookFailed),
        (429, {}, WebhookFailed),
        (500, {}, WebhookFailed),
        (503, {}, WebhookFailed),
        (429, {"Retry-After": "7"}, RetryLater),
        (503, {"Retry-After": "Fri, 31 Dec 2027 23:59:59 GMT"}, WebhookFailed),
    ],
)
async def test_webhook_other_answer_raises_its_error(
    receiver: Receiver, status: int, headers: dict[str, str], error: type[Exception]
) -> None:
    receiver.statuses, receiver.headers = [status], headers

    with pytest.raises(Exception) as caught:
        await send_to_receiver(receiver)

    assert caught.type is error


async def test_webhook_retry_after_is_limited_to_an_hour(receiver: Receiver) -> None:
    receiver.statuses, receiver.headers = [429], {"Retry-After": "100000"}

    with pytest.raises(RetryLater) as caught:
        await send_to_receiver(receiver)

    assert caught.value.after == 3600


async def test_webhook_refused_connection_raises_webhook_failed() -> None:
    port = unused_port()

    with pytest.raises(WebhookFailed, match="the request to localhost failed: ConnectionRefused"):
        await send(
            WebhookRequest(f"http://localhost:{port}/"),
            WebhookHosts.parse(f"localhost:{port}"),
            key=1,
            now=NOW,
        )


async def test_webhook_unresolvable_host_raises_webhook_failed() -> None:
    def nobody(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(WebhookFailed, match=r"hooks.example.com has no address"):
        await send(
            WebhookRequest("https://hooks.example.com/"),
            WebhookHosts.parse("hooks.example.com"),
            key=1,
            now=NOW,
            resolve=nobody,
        )


async def test_webhook_slow_answer_is_abandoned_at_timeout(receiver: Receiver) -> None:
    receiver.hold = threading.Event()

    with pytest.raises(WebhookFailed, match=r"did not answer within 0.5 s"):
        await send_to_receiver(
            receiver, WebhookRequest(f"http://localhost:{receiver.port}/", timeout=0.5)
        )

    assert await asyncio.to_thread(receiver.left.wait, 60)


async def test_webhook_cancelled_closes_its_connection(receiver: Receiver) -> None:
    receiver.hold = threading.Event()
    sending = asyncio.create_task(send_to_receiver(receiver))
    async with asyncio.timeout(60):
        while not receiver.requests:
            await asyncio.sleep(0.01)

    sending.cancel()

    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await asyncio.to_thread(receiver.left.wait, 60)


async def test_webhook_endless_header_is_refused(receiver: Receiver) -> None:
    receiver.head = b"HTTP/1.1 200 OK\r\n" + b"X-Filler: " + b"x" * 60_000 + b"\r\n"
    receiver.head += (b"X-Filler: " + b"y" * 60_000 + b"\r\n") * 20 + b"\r\n"

    with pytest.raises(WebhookFailed, match="longer than 65536 bytes"):
        await send_to_receiver(receiver)


async def test_webhook_endless_body_is_not_read(receiver: Receiver) -> None:
    receiver.head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 1000

    assert await send_to_receiver(receiver) == 200


async def test_webhook_answer_that_is_not_http_raises_webhook_failed(receiver: Receiver) -> None:
    receiver.head = b"SSH-2.0-OpenSSH_9.6\r\n"

    with pytest.raises(WebhookFailed, match="BadStatusLine"):
        await send_to_receiver(receiver)


# Scheduled webhooks


@pytest.fixture
def app(rota_harness: Harness, receiver: Receiver) -> Rota:
    app = rota_harness.app
    app.settings = replace(
        app.settings, webhook_hosts=f"localhost:{receiver.port}", webhook_secret="sesame"
    )
    app.actions("webhook")
    return app


async def test_webhook_action_failed_send_is_retried_with_same_key(
    app: Rota, rota_harness: Harness, receiver: Receiver
) -> None:
    receiver.statuses = [500, 200]
    url = f"http://localhost:{receiver.port}/hook"
    await rota_harness.clock.set(NOW)
    await app.schedules.create(
        "x", action="webhook", config={"url": url, "body": {"a": 1}}, every=3600
    )
    run = await app.schedules.trigger("x")
    for _ in range(2):
        await rota_harness.run_until_idle()
        await rota_harness.clock.advance(timedelta(minutes=1))

    assert await run.result() == 200
    first, second = receiver.requests
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] == str(run.id)
    assert (
        first.headers["Rota-Signature"] != second.headers["Rota-Signature"]
    )  # the timestamp differs by a minute


async def test_webhook_action_refused_send_is_not_retried(
    app: Rota, rota_harness: Harness, receiver: Receiver
) -> None:
    receiver.statuses = [404]
    url = f"http://localhost:{receiver.port}/hook"
    await app.schedules.create("x", action="webhook", config={"url": url}, every=3600)
    run = await app.schedules.trigger("x")

    await rota_harness.run_until_idle()

    assert await run.status() == "failed"
    assert len(receiver.requests) == 1
