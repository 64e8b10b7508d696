"""Operations of access: the caller, access tokens, the audit log and the catalog of startable names."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.app.tokens import create_access_token, revoke_access_token
from rota.errors import TokenNotFound
from rota.model.access import Role, RoleName
from rota.model.schedule_view import ACTION_PREFIX
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    Cursor,
    Limit,
    Name,
    Next,
    cut_page,
    decode_id_cursor,
)
from rota.operations.refusals import Forbidden
from rota.store import audit, ticks, tokens

group = OperationGroup("people")

DAY_SECONDS = 86400
TokenId = Annotated[str, Meta(pattern="^[a-z0-9]{1,40}$")]


class CallerDocument(msgspec.Struct, frozen=True):
    name: str
    role: RoleName


@group.operation("GET /me", Role.VIEWER)
async def whoami(context: OperationContext) -> CallerDocument:
    """Return the caller and their role."""
    return CallerDocument(context.caller.name, context.caller.role.text)  # type: ignore[arg-type]


# Catalog


class StartableDocument(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["task", "flow", "action"]
    queue: Annotated[str, Meta(description="Queue of the task; null for a flow.")] | None


class Catalog(msgspec.Struct, frozen=True):
    startable: list[StartableDocument]


@group.operation("GET /catalog", Role.VIEWER)
async def list_catalog(context: OperationContext) -> Catalog:
    """List the tasks, flows and actions that can be started in this app."""
    registry = context.app.registry
    flow_tasks = {
        node.task.name for flow in registry.flows.values() for node in flow.nodes.values()
    }
    found = [StartableDocument(name, "flow", None) for name in registry.flows]
    for name, task in registry.tasks.items():
        if name.startswith(ACTION_PREFIX):
            found.append(
                StartableDocument(name.removeprefix(ACTION_PREFIX), "action", task.policy.queue)
            )
        elif name not in flow_tasks:
            found.append(StartableDocument(name, "task", task.policy.queue))
    return Catalog(sorted(found, key=lambda each: (each.kind, each.name)))


# Tokens


class TokenListQuery(msgspec.Struct, forbid_unknown_fields=True):
    include_inactive: Annotated[bool, Meta(description="Also list expired and revoked tokens.")] = (
        False
    )
    limit: Limit = 200


class TokenList(msgspec.Struct, frozen=True):
    tokens: list[tokens.TokenRow]


class CreateTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    role: RoleName = "viewer"
    days: Annotated[float, Meta(gt=0, le=3660, description="Days until it expires.")] = 90.0


class CreatedToken(msgspec.Struct, frozen=True):
    id: str
    token: Annotated[str, Meta(description="The whole token. It is not shown again.")]
    expires: datetime | None


@group.operation("GET /tokens", Role.ADMIN)
async def list_tokens(context: OperationContext, query: TokenListQuery) -> TokenList:
    """List tokens, the newest first. Secrets are not included."""
    [found] = await context.read(
        tokens.list_tokens(include_inactive=query.include_inactive, limit=query.limit)
    )
    return TokenList(found)


@group.operation("POST /tokens", Role.ADMIN, status=201, audit="create token")
async def create_token(context: OperationContext, body: CreateTokenRequest) -> CreatedToken:
    """Create a token. Its secret is shown only in this response and is not stored."""
    if context.caller.is_local:
        raise Forbidden(
            "a token cannot be created with the key of a local server, which it would outlive; run "
            "`rota tokens create NAME` on a machine that reaches the database",
        )
    lifetime = timedelta(seconds=body.days * DAY_SECONDS)
    token, row = await create_access_token(
        context.app, body.name, Role.parse(body.role), lifetime, context.caller.name
    )
    return CreatedToken(token.id, token.text, row.expires)


@group.operation(
    "DELETE /tokens/{id}", Role.ADMIN, status=204, audit="revoke token", refuses=(TokenNotFound,)
)
async def revoke_token(context: OperationContext, id: TokenId) -> None:
    """Revoke a token; it is refused from now on."""
    await revoke_access_token(context.app, id, context.caller.name)


# Audit log


class AuditListQuery(msgspec.Struct, forbid_unknown_fields=True):
    operator: Annotated[str, Meta(max_length=1000)] | None = None
    action: Annotated[Name, Meta(description="For example `cancel run`.")] | None = None
    subject: Annotated[str, Meta(max_length=4000, description="Object of the action.")] | None = (
        None
    )
    limit: Limit = 50
    cursor: Cursor | None = None


class AuditPage(msgspec.Struct, frozen=True):
    entries: list[audit.AuditRow]
    next: Next | None


@group.operation("GET /audit", Role.ADMIN)
async def list_audit(context: OperationContext, query: AuditListQuery) -> AuditPage:
    """List the actions of operators, the latest first."""
    before = decode_id_cursor(query.cursor, audit.MAX_ID)
    entries_query = audit.entries(
        query.limit + 1, before, operator=query.operator, action=query.action, subject=query.subject
    )
    _, found = await context.read(ticks.set_short_timeouts(), entries_query)
    return AuditPage(*cut_page(found, query.limit, "id"))
