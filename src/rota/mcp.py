"""MCP server on stdin and stdout: each operation that the role permits is a tool.

A viewer's tools perform no actions, and show neither inputs nor results. Operations that need the role
admin are not offered: access tokens, the audit log and deletion stay with people.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from rota.errors import RotaError
from rota.model.access import Caller, Role
from rota.operations.arguments import decode_object
from rota.operations.declare import CALL_TIMEOUT_SECONDS, Operation, OperationContext
from rota.operations.documents import PathId
from rota.operations.refusals import TooSlow
from rota.operations.table import OPERATIONS

if TYPE_CHECKING:
    from rota.app import Rota

_ID = {
    "type": ["string", "integer"],
    "pattern": "^[0-9]{1,19}$",
    "description": "A 64-bit integer, as text: numbers in JSON are exact only up to 2^53.",
}

INSTRUCTIONS = (
    "Rota runs durable jobs, flows and schedules on PostgreSQL. Ids are 64-bit integers, written as "
    "strings of digits; times are ISO 8601 in UTC, durations seconds. Begin with `overview`; "
    "`explain_run` says why a run does not run. Long lists have pages: pass `next` as `cursor`."
)


async def serve(app: Rota, caller: Caller) -> None:
    """Serve the caller's tools on stdin and stdout until stdin ends."""
    server = build_server(app, caller)
    async with stdio_server() as (requests, responses):
        await server.run(requests, responses, server.create_initialization_options())


def build_server(app: Rota, caller: Caller) -> Server[Any]:
    offered = {each.name: each for each in OPERATIONS if offers(each, caller.role)}

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[describe(each) for each in offered.values()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in offered:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r:.60}")
        return await call(OperationContext(app, caller), offered[params.name], params.arguments)

    return Server(
        "rota",
        version=version("pgrota"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def offers(operation: Operation[Any], role: Role) -> bool:
    """True if a caller with `role` gets the operation as a tool."""
    return operation.role <= min(role, Role.OPERATOR)


def describe(operation: Operation[Any]) -> types.Tool:
    """Return the operation as a tool, with the JSON schema of its arguments."""
    kinds = dict(operation.params)
    required = list(kinds)
    for struct in filter(None, (operation.query, operation.body)):
        for each in msgspec.structs.fields(struct):
            kinds[each.encode_name] = each.type
            required += [each.encode_name] if each.required else []
    schemas, definitions = msgspec.json.schema_components(
        list(kinds.values()), ref_template="#/$defs/{name}"
    )
    properties = dict(zip(kinds, schemas, strict=True))
    properties |= {name: _ID for name, kind in operation.params.items() if kind is PathId}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if definitions:
        schema["$defs"] = definitions
    return types.Tool(
        name=operation.name,
        description=operation.summary,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=operation.method == "GET"),
    )


async def call(
    context: OperationContext, operation: Operation[Any], arguments: dict[str, Any] | None
) -> types.CallToolResult:
    """Perform the operation. A refusal is a result that the client can read and correct."""
    try:
        async with asyncio.timeout(CALL_TIMEOUT_SECONDS):
            document = await operation.perform(context, **decode_object(operation, arguments or {}))
    except TimeoutError:
        return _refused(
            TooSlow(
                f"not completed within {CALL_TIMEOUT_SECONDS:g} s; an action may have been done or not"
            )
        )
    except RotaError as error:
        return _refused(error)
    text = msgspec.json.encode(document)
    return types.CallToolResult(
        content=[types.TextContent(text=text.decode())],
        structured_content=None if document is None else msgspec.json.decode(text),
    )


def _refused(error: RotaError) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
