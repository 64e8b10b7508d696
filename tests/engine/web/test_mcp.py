"""Operations as tools of an MCP client: roles, documents, audit rows and refusals."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import pytest
from mcp import MCPError
from mcp.client import Client
from mcp_types import CallToolResult, TextContent

from rota.errors import DatabaseUnavailable
from rota.mcp import build_server, describe
from rota.model.access import Caller, Role
from rota.operations.declare import Operation
from rota.operations.table import OPERATIONS
from support.api_requests import EXAMPLES, NO_EFFECT, V1
from support.site_client import SECRET, SiteClient

CHANGES_WITH_TIME = {
    *("list_workers", "list_queues", "overview", "list_rate_limits", "autoscale"),
    "check_database",
}
"""Reads whose document holds ages or rates."""

BY_OPERATOR = [each for each in OPERATIONS if each.role <= Role.OPERATOR]


@asynccontextmanager
async def mcp_client(site_client: SiteClient, role: Role) -> AsyncIterator[Client]:
    server = build_server(site_client.app, Caller("ada (mcp)", role))
    async with Client(server) as client:
        yield client


async def example_arguments(site_client: SiteClient, operation: Operation[Any]) -> dict[str, Any]:
    """Return the arguments of the operation's HTTP example as one object."""
    path, more = await EXAMPLES[operation.method, V1 + operation.path](site_client)
    pattern = re.sub(r"\{(\w+)(:path)?\}", r"(?P<\1>.+)", V1 + operation.path)
    found = re.fullmatch(pattern, path)
    assert found is not None
    return {**found.groupdict(), **more.get("json", {}), **more.get("params", {})}


def _text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("role", Role)
async def test_mcp_tools_are_the_operations_of_the_role(
    site_client: SiteClient, role: Role
) -> None:
    async with mcp_client(site_client, role) as client:
        tools = (await client.list_tools()).tools

    expected = [each for each in BY_OPERATOR if each.role <= role]
    assert [each.name for each in tools] == [each.name for each in expected]
    for tool, operation in zip(tools, expected, strict=True):
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (operation.method == "GET")


@pytest.mark.parametrize("operation", BY_OPERATOR, ids=lambda each: each.name)
async def test_mcp_call_has_the_document_and_audit_row_of_the_api(
    site_client: SiteClient, operation: Operation[Any]
) -> None:
    arguments = await example_arguments(site_client, operation)
    jsonschema.validate(arguments, describe(operation).input_schema)
    [[before]] = await site_client.sql("select coalesce(max(id), 0) from rota.audit")

    async with mcp_client(site_client, Role.OPERATOR) as client:
        result = await client.call_tool(operation.name, arguments)

    assert not result.is_error, result.content
    audit = "select action, operator from rota.audit where id > %s"
    found = await site_client.sql(audit, before)
    has_effect = operation.audit is not None and operation.name not in NO_EFFECT
    assert found == ([(operation.audit, "ada (mcp)")] if has_effect else [])
    is_list = operation.method == "GET" and not operation.params
    if is_list and operation.name not in {*CHANGES_WITH_TIME, "whoami"}:
        body = await site_client.done("GET", V1 + operation.path, who="operator")
        assert result.structured_content == body


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.role > Role.VIEWER],
    ids=lambda each: each.name,
)
async def test_mcp_viewer_cannot_act(site_client: SiteClient, operation: Operation[Any]) -> None:
    arguments = await example_arguments(site_client, operation)
    [[before]] = await site_client.sql("select coalesce(max(id), 0) from rota.audit")

    async with mcp_client(site_client, Role.VIEWER) as client:
        with pytest.raises(MCPError, match=f"there is no tool '{operation.name}'"):
            await client.call_tool(operation.name, arguments)

    assert await site_client.sql("select 1 from rota.audit where id > %s", before) == []


async def test_mcp_viewer_sees_no_input_and_operator_does(site_client: SiteClient) -> None:
    run = await site_client.start("greet", input={"name": SECRET})
    seen = {}

    # An id is accepted as text, as documents have it, and as a number.
    for role, id in ((Role.VIEWER, str(run)), (Role.OPERATOR, int(run))):
        async with mcp_client(site_client, role) as client:
            seen[role] = str(await client.call_tool("show_run", {"run": id}))

    assert SECRET not in seen[Role.VIEWER]
    assert SECRET in seen[Role.OPERATOR]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("show_run", {"run": "9000000000000000000"}, "there is no run 9000000000000000000"),
        ("show_run", {"run": "x"}, "there is no run 'x'"),
        ("show_run", {}, "show_run needs 'run'"),
        ("list_runs", {"limit": 0}, "limit"),
        ("list_runs", {"colour": "red"}, "colour"),
        ("list_queues", {"colour": "red"}, "there is no parameter 'colour'"),
        ("pause_queue", {"queue": "q", "reason": 3}, "reason"),
        ("pause_queue", {"queue": "a\0b"}, "NUL"),
    ],
)
async def test_mcp_invalid_arguments_are_explained_to_the_client(
    site_client: SiteClient, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async with mcp_client(site_client, Role.OPERATOR) as client:
        result = await client.call_tool(tool, arguments)

    assert result.is_error
    assert message in _text(result)


async def test_mcp_unavailable_database_is_explained_to_the_client(
    site_client: SiteClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise DatabaseUnavailable("the database is unavailable")

    monkeypatch.setattr(site_client.app, "open", fail)
    async with mcp_client(site_client, Role.VIEWER) as client:
        result = await client.call_tool("list_queues", {})

    assert result.is_error
    assert _text(result) == "the database is unavailable"
