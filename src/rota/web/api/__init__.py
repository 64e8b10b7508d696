"""The JSON API, `/api/v1`: what the command line can do, over HTTP."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.model.access import Role
from rota.web.answers import answer
from rota.web.api import coordination, fleet, many, people, runs, schedules, why
from rota.web.api.openapi import document
from rota.web.api.operations import PREFIX, Operation
from rota.web.auth import needs
from rota.web.requests import root_of

if TYPE_CHECKING:
    from rota.app import Rota

OPERATIONS: list[Operation] = [
    operation
    # /runs/count before /runs/{run}.
    for module in (many, runs, why, schedules, fleet, coordination, people)
    for operation in module.table.operations
]


def routes(app: Rota) -> list[Route]:
    """The routes of the API; each says whom it is for."""
    found = [each.route(app) for each in OPERATIONS]
    return [*found, Route(f"{PREFIX}/openapi.json", show_openapi, methods=["GET"])]


@needs(Role.VIEWER)
async def show_openapi(request: Request) -> Response:
    # Where it is mounted, the paths begin.
    return answer({**openapi(), "servers": [{"url": root_of(request.scope) or "/"}]})


@cache
def openapi() -> dict[str, Any]:
    from importlib.metadata import version

    return document(OPERATIONS, version("rota"))
