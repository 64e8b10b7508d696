"""Every route, requested with every role: the table of routes defines the role that each requires.

A route without an entry in `EXAMPLES` fails here.
"""

from __future__ import annotations

import pytest

from rota import Rota
from rota.model.access import Role
from rota.web import api, health
from rota.web.auth import route_roles
from support.api_requests import EXAMPLES
from support.site_client import PASSES, SiteClient

ROUTES = [
    (method, path, role)
    for of in (health, api)
    for method, path, role in route_roles(of.routes(Rota("postgresql://nowhere/at_all")))
]


def test_api_routes_each_have_an_example() -> None:
    assert {(method, path) for method, path, _ in ROUTES} == EXAMPLES.keys()


@pytest.mark.parametrize(("method", "path", "role"), ROUTES)
async def test_api_route_accepts_only_its_role_and_higher_roles(
    site_client: SiteClient, method: str, path: str, role: Role | None
) -> None:
    for who in PASSES:
        concrete, more = await EXAMPLES[method, path](site_client)
        answer = await site_client.ask(method, concrete, who=who, **more)
        if role is None:
            assert answer.status_code == 200, who
        elif who in ("nobody", "expired", "revoked"):
            assert answer.status_code == 401, who
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert answer.json()["error"]["code"] == "unauthenticated"
        elif Role.parse(who) < role:
            assert answer.status_code == 403, who
            assert answer.json()["error"]["code"] == "forbidden"
        else:
            assert answer.is_success, f"{who}: {answer.text}"
