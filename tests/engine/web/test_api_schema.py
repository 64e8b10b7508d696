"""The API conforms to its OpenAPI document: requests are generated from the document, sent as an admin, and
the answers are validated against it. `make test` runs a few, ROTA_TEST_LONG=1 many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS as CHECK_REGISTRY
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode

from rota.testing.server import DatabaseServer
from rota.web.api import openapi
from support.scale import scale
from support.site_client import SiteClient, make_site_app

MANY = scale(3, 100)

load_all_checks()
CHECKS = CHECK_REGISTRY.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    ]
)


def _without_security(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without authentication: here every caller is an admin."""
    components = {"schemas": document["components"]["schemas"]}
    return {**document, "security": [], "components": components}


schema = schemathesis.openapi.from_dict(_without_security(openapi()))
OPERATIONS: dict[str, Any] = {
    found.label: found
    for each in schema.get_all_operations()
    if (found := each.ok() if isinstance(each, Ok) else None) is not None
}
TAKING = {label: each for label, each in OPERATIONS.items() if each.body.items or each.query.items}


class CaseSender:
    """Sends cases to a site in this process, on one event loop for all of them."""

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._visitors = self._runner.run(self._open(dsn))

    async def _open(self, dsn: str) -> SiteClient:
        visitors = await SiteClient(make_site_app(dsn)).__aenter__()
        flow = await visitors.start("etl", input={"day": "monday"})
        schedule = {"name": "a schedule", "task": "greet", "every": 60, "input": {"name": "Ada"}}
        await visitors.done("POST", "/api/v1/schedules", json=schedule)
        self.there = {
            **{"run": flow, "name": schedule["name"]},
            **{"worker": "1", "id": "none", "queue": "default"},
        }
        return visitors

    def close(self) -> None:
        self._runner.run(self._visitors.app.close())
        self._runner.close()

    def send(self, case: Any) -> httpx2.Response:
        said = case.as_transport_kwargs(base_url="http://localhost:8000")
        said.pop("timeout", None)
        sent = requests.Request(
            **{
                key: value
                for key, value in said.items()
                if key in ("method", "url", "headers", "params", "json", "data", "cookies")
            }
        ).prepare()
        headers = {
            str(key): str(value)
            for key, value in sent.headers.items()
            if key.lower() != "authorization"
        }
        assert sent.method is not None
        asked = self._visitors.ask(
            sent.method, str(sent.url), headers=headers, content=sent.body or b""
        )
        return self._runner.run(asked)


@pytest.fixture(scope="module")
def case_sender(rota_server: DatabaseServer, way: Callable[[str], str]) -> Iterator[CaseSender]:
    with rota_server.database() as dsn:
        asking = CaseSender(way(dsn))
        yield asking
        asking.close()


def check_cases(asking: CaseSender, cases: Any, change: Callable[[Any], None]) -> None:
    @settings(
        max_examples=MANY,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=cases, is_changed=st.booleans())
    def holds(case: Any, is_changed: bool) -> None:
        if is_changed:
            change(case)
        case.validate_response(asking.send(case), checks=CHECKS)

    holds()


@pytest.mark.parametrize("label", OPERATIONS)
def test_openapi_valid_request_gets_documented_response(
    case_sender: CaseSender, label: str
) -> None:
    operation = OPERATIONS[label]

    def about_what_is_there(case: Any) -> None:
        for name in case.path_parameters or {}:
            case.path_parameters[name] = case_sender.there[name]
        if label == "POST /api/v1/runs" and isinstance(case.body, dict):
            case.body.update(name="greet", input={"name": "Ada"}, queue=None)

    cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    check_cases(case_sender, cases, about_what_is_there)


@pytest.mark.parametrize("label", TAKING)
def test_openapi_invalid_request_is_refused(case_sender: CaseSender, label: str) -> None:
    cases = TAKING[label].as_strategy(generation_mode=GenerationMode.NEGATIVE)
    check_cases(case_sender, cases, lambda case: None)
