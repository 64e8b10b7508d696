"""How it goes with this instance and with all of them, for those who watch, route and scale.

    /health/live       200 for as long as the event loop turns, whatever the database does
    /health/ready      200 while requests are wanted here, else 503 with the reasons
    /health/instances  who is there
    /metrics           for Prometheus
    /autoscale         how many workers are wanted, by queue
    POST /admin/drain  have an instance leave

live and ready are open to all, and say nothing that helps a stranger; the rest is for whoever is known.
"""

from __future__ import annotations

import math
import os
import socket
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from rota.engine.deeds import act
from rota.model import codec
from rota.model.access import Role
from rota.store import meters, views
from rota.store.audit import Deed
from rota.web.answers import Refused, answer
from rota.web.auth import Endpoint, caller, needs, open_to_all
from rota.web.figures import scaling
from rota.web.instances import instances

if TYPE_CHECKING:
    from rota.app import Rota

LARGEST_BODY = 10_000
ANSWER_WITHIN = 5.0
"""Seconds."""

LIVE = ("/health/live", "/livez", "/healthz")
READY = ("/health/ready", "/readyz")


def health(app: Rota) -> ASGIApp:
    """All of it, behind a guard, to be mounted in an application of yours."""
    from rota.web.site import site

    return site(app, parts=("health",))


class Drain(msgspec.Struct, forbid_unknown_fields=True):
    """Whom to ask to leave; None: the instance that answers."""

    worker: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


def routes(app: Rota) -> list[BaseRoute]:
    @open_to_all
    async def live(request: Request) -> Response:
        # Not app.open(), which asks for the database.
        client = app.opened()
        worker = client.worker if client is not None else None
        lag = worker.life.heart.lag if worker is not None and worker.lives else None
        return answer({"status": "live", "lag": None if lag is None else round(lag, 3)})

    @open_to_all
    async def ready(request: Request) -> Response:
        reasons = await app.readiness.reasons()
        if not reasons:
            return answer({"status": "ready", "reasons": []})
        told = [{"code": each.code, "message": each.message} for each in reasons]
        return answer({"status": "not ready", "reasons": told}, 503, {"Retry-After": "1"})

    @needs(Role.VIEWER)
    async def who_is_there(request: Request) -> Response:
        return answer(await instances(app))

    @needs(Role.VIEWER)
    async def metrics(request: Request) -> Response:
        try:
            from rota.web.collector import expose
        except ImportError as error:
            raise Refused(
                501, "not_installed", "metrics need prometheus-client: pip install 'rota[web]'"
            ) from error
        body, content_type = await expose(app, request.headers.get("accept"))
        return Response(body, headers={"Content-Type": content_type})

    @needs(Role.VIEWER)
    async def autoscale(request: Request) -> Response:
        query = scaling(
            app,
            target=_number(request, "target", 0.001, 86400.0),
            fewest=_whole(request, "min", 0, 100_000),
            most=_whole(request, "max", 0, 100_000),
            concurrency=_whole(request, "concurrency", 1, 100_000),
            queue=_name(request, "queue"),
        )
        database = (await app.open()).database
        [[_, queues]] = await database.exchange([[meters.bound(ANSWER_WITHIN), query]])
        return answer({"wanted": {each.queue: each.wanted for each in queues}, "queues": queues})

    @needs(Role.OPERATOR)
    async def drain(request: Request) -> Response:
        wish = _wish(await _body(request))
        who = caller(request).name
        if wish.worker is not None:
            await app.drain(wish.worker, by=who)
            return answer({"worker": wish.worker, "state": "draining"}, 202)
        return answer({"worker": await _leave(app, who), "state": "draining"}, 202)

    def get(path: str, endpoint: Endpoint, name: str) -> Route:
        return Route(path, endpoint, methods=["GET"], name=name)

    return [
        *(get(path, live, f"live {path}") for path in LIVE),
        *(get(path, ready, f"ready {path}") for path in READY),
        get("/health/instances", who_is_there, "instances"),
        get("/metrics", metrics, "metrics"),
        get("/autoscale", autoscale, "autoscale"),
        Route("/admin/drain", drain, methods=["POST"], name="drain"),
    ]


async def _leave(app: Rota, who: str) -> int | None:
    """Have this instance leave: its worker by the database, as any other; requests are wanted no more."""
    client = await app.open()
    worker = client.worker.id if client.worker is not None and client.worker.lives else None
    if worker is not None:
        await app.drain(worker, by=who)
    else:
        place = f"{socket.gethostname()}:{os.getpid()}"
        deed = Deed(who, "drain instance", place)
        await act(client.database, views.clock(), deed, did=lambda now: True, repeats=False)
    app.readiness.drain()
    return worker


async def _body(request: Request) -> bytes:
    body = b""
    async for some in request.stream():
        body += some
        if len(body) > LARGEST_BODY:
            raise Refused(413, "too_large", f"the body is larger than {LARGEST_BODY} bytes")
    return body


def _wish(body: bytes) -> Drain:
    if not body.strip():
        return Drain()
    try:
        return msgspec.json.decode(body, type=Drain)
    except msgspec.MsgspecError as error:
        raise Refused(
            422, "invalid", f'say {{"worker": NUMBER}}, or nothing for this instance: {error}'
        ) from None


def _name(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and codec.storable(text) != text:
        raise Refused(422, "invalid", f"{name} holds a NUL or a lone surrogate, which is no text")
    return text


def _number(request: Request, name: str, least: float, most: float) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise Refused(
            422, "invalid", f"{name} is a number from {least:g} to {most:g}, not {text!r:.60}"
        )
    return value


def _whole(request: Request, name: str, least: int, most: int) -> Any:
    value = _number(request, name, least, most)
    if value is not None and value != int(value):
        raise Refused(422, "invalid", f"{name} is a whole number, not {value:g}")
    return None if value is None else int(value)
