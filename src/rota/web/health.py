"""Health, metrics and autoscaling endpoints, for monitoring, load balancers and autoscalers.

    /health/live       200 while the event loop runs, also without a database
    /health/ready      200 while this instance accepts requests, else 503 with the reasons
    /health/instances  list of workers and instances
    /metrics           Prometheus metrics
    /autoscale         desired number of workers by queue
    POST /admin/drain  drain an instance

live and ready are public and reveal no details. All other endpoints require a role.
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

from rota.engine.audited import run_audited_query
from rota.model import codec
from rota.model.access import Role
from rota.store import metrics as store_metrics
from rota.store.audit import AuditEntry
from rota.store.read import runs
from rota.web.auth import Endpoint, caller, open_to_all, require_role
from rota.web.fleet_metrics import desired_workers
from rota.web.instances import read_instances
from rota.web.responses import HttpError, json_response

if TYPE_CHECKING:
    from rota.app import Rota

MAX_BODY_BYTES = 10_000
QUERY_TIMEOUT_SECONDS = 5.0

LIVE_PATHS = ("/health/live", "/livez", "/healthz")
READY_PATHS = ("/health/ready", "/readyz")


def health(app: Rota) -> ASGIApp:
    """Return the health endpoints as an ASGI app with its guard, to be mounted in an application."""
    from rota.web.site import site

    return site(app, parts=("health",))


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of POST /admin/drain: the worker to drain; null means the instance that answers."""

    worker: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


def routes(app: Rota) -> list[BaseRoute]:
    @open_to_all
    async def live(request: Request) -> Response:
        # Not app.open(), which needs the database.
        client = app.database.current_client()
        worker = client.worker if client is not None else None
        lag = (
            worker.session.heartbeat.lag_seconds
            if worker is not None and worker.is_running
            else None
        )
        return json_response({"status": "live", "lag": None if lag is None else round(lag, 3)})

    @open_to_all
    async def ready(request: Request) -> Response:
        reasons = await app.readiness.reasons()
        if not reasons:
            return json_response({"status": "ready", "reasons": []})
        details = [{"code": each.code, "message": each.message} for each in reasons]
        return json_response({"status": "not ready", "reasons": details}, 503, {"Retry-After": "1"})

    @require_role(Role.VIEWER)
    async def list_instances(request: Request) -> Response:
        return json_response(await read_instances(app))

    @require_role(Role.VIEWER)
    async def metrics(request: Request) -> Response:
        try:
            from rota.web.prometheus import render_metrics
        except ImportError as error:
            raise HttpError(
                501, "not_installed", "metrics need prometheus-client: pip install 'pgrota[web]'"
            ) from error
        body, content_type = await render_metrics(app, request.headers.get("accept"))
        return Response(body, headers={"Content-Type": content_type})

    @require_role(Role.VIEWER)
    async def autoscale(request: Request) -> Response:
        query = desired_workers(
            app,
            target=_number_parameter(request, "target", 0.001, 86400.0),
            min_workers=_integer_parameter(request, "min", 0, 100_000),
            max_workers=_integer_parameter(request, "max", 0, 100_000),
            concurrency=_integer_parameter(request, "concurrency", 1, 100_000),
            queue=_text_parameter(request, "queue"),
        )
        database = (await app.open()).database
        [[_, queues]] = await database.pipeline(
            [[store_metrics.set_timeout(QUERY_TIMEOUT_SECONDS), query]]
        )
        return json_response(
            {"desired": {each.queue: each.desired for each in queues}, "queues": queues}
        )

    @require_role(Role.OPERATOR)
    async def drain(request: Request) -> Response:
        order = _parse_drain_request(await _read_body(request))
        operator = caller(request).name
        if order.worker is not None:
            await app.drain(order.worker, by=operator)
            return json_response({"worker": order.worker, "state": "draining"}, 202)
        return json_response(
            {"worker": await _drain_this_instance(app, operator), "state": "draining"}, 202
        )

    def get(path: str, endpoint: Endpoint, name: str) -> Route:
        return Route(path, endpoint, methods=["GET"], name=name)

    return [
        *(get(path, live, f"live {path}") for path in LIVE_PATHS),
        *(get(path, ready, f"ready {path}") for path in READY_PATHS),
        get("/health/instances", list_instances, "instances"),
        get("/metrics", metrics, "metrics"),
        get("/autoscale", autoscale, "autoscale"),
        Route("/admin/drain", drain, methods=["POST"], name="drain"),
    ]


async def _drain_this_instance(app: Rota, operator: str) -> int | None:
    """Drain this instance and return its worker's id, or None if it has no worker.

    A worker is drained through the database, as on any other instance. Readiness fails from now on.
    """
    client = await app.open()
    worker = client.worker.id if client.worker is not None and client.worker.is_running else None
    if worker is not None:
        await app.drain(worker, by=operator)
    else:
        address = f"{socket.gethostname()}:{os.getpid()}"
        entry = AuditEntry(operator, "drain instance", address)
        await run_audited_query(
            client.database,
            runs.database_time(),
            entry,
            was_done=lambda now: True,
            is_idempotent=False,
        )
    app.readiness.drain()
    return worker


async def _read_body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HttpError(413, "too_large", f"the body is larger than {MAX_BODY_BYTES} bytes")
    return body


def _parse_drain_request(body: bytes) -> DrainRequest:
    if not body.strip():
        return DrainRequest()
    try:
        return msgspec.json.decode(body, type=DrainRequest)
    except msgspec.MsgspecError as error:
        raise HttpError(
            422, "invalid", f'say {{"worker": NUMBER}}, or nothing for this instance: {error}'
        ) from None


def _text_parameter(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and codec.escape_unstorable(text) != text:
        raise HttpError(422, "invalid", f"{name} holds a NUL or a lone surrogate, which is no text")
    return text


def _number_parameter(request: Request, name: str, minimum: float, maximum: float) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not minimum <= value <= maximum:
        raise HttpError(
            422, "invalid", f"{name} is a number from {minimum:g} to {maximum:g}, not {text!r:.60}"
        )
    return value


def _integer_parameter(request: Request, name: str, minimum: int, maximum: int) -> Any:
    value = _number_parameter(request, name, minimum, maximum)
    if value is not None and value != int(value):
        raise HttpError(422, "invalid", f"{name} is a whole number, not {value:g}")
    return None if value is None else int(value)
