"""The JSON API under `/api/v1`: the operations of the command line, over HTTP."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.model.access import Role
from rota.web.api import access, bulk, coordination, explain, runs, schedules, workers
from rota.web.api.openapi import build_document
from rota.web.api.router import PREFIX, Operation
from rota.web.auth import require_role
from rota.web.in_flight import mount_path
from rota.web.responses import json_response

if TYPE_CHECKING:
    from rota.app import Rota

OPERATIONS: list[Operation] = [
    operation
    # The order matters: /runs/count must match before /runs/{run}.
    for module in (bulk, runs, explain, schedules, workers, coordination, access)
    for operation in module.router.operations
]


def routes(app: Rota) -> list[Route]:
    """Return the routes of the API, each with its required role."""
    found = [each.route(app) for each in OPERATIONS]
    return [*found, Route(f"{PREFIX}/openapi.json", show_openapi, methods=["GET"])]


@require_role(Role.VIEWER)
async def show_openapi(request: Request) -> Response:
    # The paths of the document are relative to the mount path.
    return json_response({**openapi(), "servers": [{"url": mount_path(request.scope) or "/"}]})


@cache
def openapi() -> dict[str, Any]:
    from importlib.metadata import version

    return build_document(OPERATIONS, version("pgrota"))
