"""Rules that hold for every operation of the table: roles, audit rows, and bodies on all surfaces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pytest

from rota.cli import main
from rota.model.access import Caller, Role
from rota.operations.declare import Operation, OperationContext
from rota.operations.refusals import Forbidden
from rota.operations.table import OPERATIONS
from rota.web.api import openapi
from support.api_requests import EXAMPLES, NO_EFFECT, V1
from support.site_client import SiteClient

COMMANDS = {
    "list_runs": "runs --limit 50",
    "list_quarantine": "quarantine --limit 50",
    "list_locks": "locks",
    "list_leaders": "leaders",
    "list_services": "services",
    "list_alerts": "alerts",
    "list_schedules": "schedules --limit 50",
    "list_audit": "audit --limit 50",
}
"""Commands whose document does not depend on the time."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
async def test_operation_role_below_its_own_is_refused(operation: Operation[Any]) -> None:
    """The check does not depend on the surface: no app is needed."""
    app: Any = None
    for role in Role:
        if role < operation.role:
            with pytest.raises(Forbidden, match=f"{operation.name} needs the role"):
                await operation.perform(OperationContext(app, Caller("ada", role)))


def test_operation_that_changes_something_needs_operator_and_audit() -> None:
    for each in OPERATIONS:
        is_action = each.method != "GET"
        assert (each.audit is not None) is is_action, each.name
        assert not is_action or each.role >= Role.OPERATOR, each.name


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
async def test_operation_action_writes_one_audit_row_and_read_none(
    site_client: SiteClient, operation: Operation[Any]
) -> None:
    """The row names the operator and the object, which is the one in the path, if there is one."""
    path, more = await EXAMPLES[operation.method, V1 + operation.path](site_client)
    [[before]] = await site_client.sql("select coalesce(max(id), 0) from rota.audit")

    answer = await site_client.done(operation.method, path, **more)

    found = await site_client.sql(
        "select operator, action, subject from rota.audit where id > %s", before
    )
    if operation.audit is None or operation.name in NO_EFFECT:
        assert found == []
        return
    operator = (await site_client.done("GET", f"{V1}/me"))["name"]
    [(_, _, subject)] = found
    assert found == [(operator, operation.audit, subject)]
    if "{" in operation.path:
        assert f"/{subject}/" in f"{unquote(path)}/"
    else:
        said = json.dumps([more, answer])
        assert all(part in said for part in subject.split(": "))  # an alert is "kind: subject"


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.method == "GET" and each.role is Role.VIEWER],
    ids=lambda each: each.name,
)
async def test_operation_read_has_no_hidden_field_for_viewers(
    site_client: SiteClient, operation: Operation[Any]
) -> None:
    await site_client.app.queues.pause(f"queue-{uuid4()}", "a reason", by="ada")
    await site_client.start("greet", input={"name": "Ada"})
    path, more = await EXAMPLES[operation.method, V1 + operation.path](site_client)

    seen = {
        who: list(hidden_fields(operation, await site_client.done("GET", path, who=who, **more)))
        for who in ("viewer", "operator")
    }

    assert seen["viewer"] == []
    shows_hidden = ("list_runs", "show_run", "list_jobs", "list_queues", "show_schedule")
    assert bool(seen["operator"]) or operation.name not in shows_hidden


def hidden_fields(operation: Operation[Any], document: Any) -> Iterator[str]:
    """Yield the fields of a body that the OpenAPI document calls absent for viewers."""
    components = openapi()["components"]["schemas"]

    def walk(schema: dict[str, Any], value: Any) -> Iterator[str]:
        for each in schema.get("anyOf", ()):
            yield from walk(each, value)
        if "$ref" in schema:
            schema = components[schema["$ref"].rpartition("/")[2]]
        if isinstance(value, list):
            for each in value:
                yield from walk(schema.get("items", {}), each)
        elif isinstance(value, dict):
            all_optional = "absent for viewers" in schema.get("description", "").lower()
            for name, kind in schema.get("properties", {}).items():
                is_hidden = "Absent for viewers" in json.dumps(kind) or (
                    all_optional and name not in schema["required"]
                )
                if name in value and is_hidden:
                    yield f"{schema['title']}.{name}"
                yield from walk(kind, value.get(name))

    yield from walk({"$ref": f"/{operation.response.__name__}"}, document)


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.name in COMMANDS],
    ids=lambda each: each.name,
)
async def test_command_json_equals_body_of_the_api(
    site_client: SiteClient,
    site_dsn: str,
    operation: Operation[Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    await site_client.start("greet", input={"name": "Ada"})
    words = [*COMMANDS[operation.name].split(), "--json", "--dsn", site_dsn]
    capfd.readouterr()

    assert await asyncio.to_thread(main.run, words) == 0
    printed = json.loads(capfd.readouterr().out)

    assert printed == await site_client.done("GET", V1 + operation.path)
