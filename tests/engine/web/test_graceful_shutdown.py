"""Time that a web process has for shutting down, without a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rota import Rota
from rota.web import graceful_shutdown
from rota.web.graceful_shutdown import (
    GracefulShutdown,
    InFlightRequests,
    Message,
    Receive,
    Scope,
    Send,
)


@pytest.fixture
def app() -> Rota:
    app = Rota("postgresql://localhost/nowhere")
    app.settings = replace(app.settings, drain_delay=0.1, drain_timeout=2.0)
    app.readiness.mark_starting()
    return app


async def receive_nothing() -> Message:
    return {}


async def ignore_message(message: Message) -> None: ...


async def test_graceful_shutdown_after_long_drain_waits_for_requests(
    app: Rota,
) -> None:
    app.settings = replace(app.settings, drain_timeout=600.0)
    asked, go, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await go.wait()
        answered.set()

    app.readiness.drain()
    assert app.readiness.draining_since is not None
    app.readiness.draining_since -= 3600
    told: list[int] = []
    requests = InFlightRequests(app.readiness)
    leaving = GracefulShutdown(app, requests, told.append)
    asking = asyncio.create_task(
        requests.serve(api, {"type": "http"}, receive_nothing, ignore_message)
    )
    await asked.wait()
    leaving.on_signal(15)
    while not told:
        await asyncio.sleep(0.01)
    for _ in range(
        100
    ):  # a timeout that has passed cancels the request in the next turns of the loop
        await asyncio.sleep(0)
    assert not asking.done()
    go.set()
    await asking
    assert answered.is_set()
    leaving.cancel()


async def test_graceful_shutdown_third_signal_is_forwarded_to_server(
    app: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graceful_shutdown, "HURRY_SECONDS", 0.01)
    told: list[int] = []
    leaving = GracefulShutdown(app, InFlightRequests(app.readiness), told.append)
    leaving.on_signal(15)
    await asyncio.sleep(0.01)
    leaving.on_signal(15)
    async with asyncio.timeout(60):
        while not told:
            await asyncio.sleep(0.01)
    assert told == [15]
    leaving.on_signal(2)
    assert told == [15, 2]
    leaving.cancel()


async def test_graceful_shutdown_signal_during_start_stops_server_at_once(app: Rota) -> None:
    told: list[int] = []
    requests = InFlightRequests(app.readiness)
    leaving = GracefulShutdown(app, requests, told.append, is_serving=lambda: False)
    leaving.on_signal(15)
    assert (told, app.readiness.is_draining) == ([15], False)
    leaving.on_signal(15)
    assert (told, app.readiness.is_hurried) == ([15], True)
    leaving.on_signal(2)
    assert told == [15, 2]
    leaving.cancel()
