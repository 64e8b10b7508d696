"""The guide to the API lists every error code, and the OpenAPI document every route."""

from __future__ import annotations

from rota import Rota
from rota.operations.refusals import REFUSALS
from rota.web.api import openapi, routes
from rota.web.auth import route_roles
from support.places import ROOT

PAGE = ROOT / "docs" / "guides" / "http-api.md"


def test_api_guide_lists_every_error_code() -> None:
    text = PAGE.read_text("utf-8")
    for each in REFUSALS:
        assert f"`{each.code}`" in text
        assert str(each.status) in text


def test_openapi_document_covers_every_route() -> None:
    document = openapi()
    there = {
        (method.lower(), path.replace(":path", ""))
        for method, path, _ in route_roles(routes(Rota("postgresql://nowhere/at_all")))
        if not path.endswith("openapi.json")
    }
    assert {(method, path) for path, of in document["paths"].items() for method in of} == there
    assert document["openapi"].startswith("3.1")
    ids = [of["operationId"] for each in document["paths"].values() for of in each.values()]
    assert len(ids) == len(set(ids))
