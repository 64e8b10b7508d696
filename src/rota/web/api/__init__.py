"""The JSON API under `/api/v1`: the operations over HTTP."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.model.access import Role
from rota.operations.table import OPERATIONS
from rota.web.api.openapi import build_document
from rota.web.api.router import PREFIX, route
from rota.web.auth import require_role
from rota.web.responses import json_response, mount_path

if TYPE_CHECKING:
    from rota.app import Rota


def routes(app: Rota) -> list[Route]:
    """Return the routes of the API, each with its required role."""
    found = [route(each, app) for each in OPERATIONS]
    return [*found, Route(f"{PREFIX}/openapi.json", show_openapi, methods=["GET"])]


@require_role(Role.VIEWER)
async def show_openapi(request: Request) -> Response:
    # The paths of the document are relative to the mount path.
    return json_response({**openapi(), "servers": [{"url": mount_path(request.scope) or "/"}]})


@cache
def openapi() -> dict[str, Any]:
    from importlib.metadata import version

    return build_document(OPERATIONS, version("pgrota"))
