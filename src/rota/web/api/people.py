"""Who may ask, and what people did, over HTTP: oneself, tokens, the audit log; and what can be started."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rota.app.access import create_token, revoke_token
from rota.model.access import Role
from rota.model.agenda import ACTION
from rota.store import audit, ticks, tokens
from rota.web.answers import Refused
from rota.web.api.operations import Desk, Table
from rota.web.api.shapes import Cursor, Id, Limit, Name, Next, cursor, number, shape

table = Table("people")

RoleName = Literal["viewer", "operator", "admin"]
DAY = 86400
TokenId = Annotated[str, Meta(pattern="^[a-z0-9]{1,40}$")]


class Me(msgspec.Struct, frozen=True):
    name: str
    role: RoleName


@table.add("GET", "/me", Role.VIEWER)
async def who_am_i(desk: Desk) -> Me:
    """Who asks, and what he may do."""
    return Me(desk.caller.name, desk.caller.role.word)  # type: ignore[arg-type]


# What this app has


class Startable(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["task", "flow", "action"]
    queue: Annotated[str, Meta(description="null: each task of a flow has its own.")] | None


class Catalog(msgspec.Struct, frozen=True):
    startable: list[Startable]


@table.add("GET", "/catalog", Role.VIEWER)
async def list_catalog(desk: Desk) -> Catalog:
    """What can be started here: the tasks and flows of the app that answers."""
    registry = desk.app.registry
    parts = {node.task.name for flow in registry.flows.values() for node in flow.nodes.values()}
    found = [Startable(name, "flow", None) for name in registry.flows]
    for name, task in registry.tasks.items():
        if name.startswith(ACTION):
            found.append(Startable(name.removeprefix(ACTION), "action", task.policy.queue))
        elif name not in parts:
            found.append(Startable(name, "task", task.policy.queue))
    return Catalog(sorted(found, key=lambda each: (each.kind, each.name)))


# Tokens


class Token(msgspec.Struct, frozen=True):
    id: str
    name: str
    role: RoleName
    maker: str
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    used: Annotated[datetime, Meta(description="To the minute.")] | None
    state: Annotated[str, Meta(description="good, expired or revoked.")]


class TokensQuery(msgspec.Struct, forbid_unknown_fields=True):
    over: Annotated[bool, Meta(description="Also those that open nothing any more.")] = False
    limit: Limit = 200


class Tokens(msgspec.Struct, frozen=True):
    tokens: list[Token]


class NewToken(msgspec.Struct, forbid_unknown_fields=True):
    name: Name
    role: RoleName = "viewer"
    days: Annotated[float, Meta(gt=0, le=3660, description="It is good for so long.")] = 90.0


class Minted(msgspec.Struct, frozen=True):
    id: str
    token: Annotated[str, Meta(description="All of it, this once.")]
    expires: datetime | None


@table.add("GET", "/tokens", Role.ADMIN)
async def list_tokens(desk: Desk, query: TokensQuery) -> Tokens:
    """Tokens, the newest first. What opens anything is not told."""
    [found] = await desk.ask(tokens.listed(over=query.over, limit=query.limit))
    return Tokens([shape(Token, each) for each in found])


@table.add("POST", "/tokens", Role.ADMIN, status=201)
async def create_a_token(desk: Desk, body: NewToken) -> Minted:
    """Make a token. It is shown this once, and kept nowhere."""
    if desk.caller.local:
        raise Refused(
            403,
            "forbidden",
            "a token cannot be created with the key of a local server, which it would outlive; run "
            "`rota tokens create NAME` on a machine that reaches the database",
        )
    lifetime = timedelta(seconds=body.days * DAY)
    made, line = await create_token(
        desk.app, body.name, Role.named(body.role), lifetime, desk.caller.name
    )
    return Minted(made.id, made.text, line.expires)


@table.add("DELETE", "/tokens/{id}", Role.ADMIN, status=204, fails=(404,))
async def revoke_a_token(desk: Desk, id: TokenId) -> None:
    """Have a token open nothing from now on."""
    await revoke_token(desk.app, id, desk.caller.name)


# What people did


class Entry(msgspec.Struct, frozen=True):
    id: Id
    at: datetime
    who: str
    action: str
    subject: str
    detail: msgspec.Raw


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    who: Annotated[str, Meta(max_length=1000)] | None = None
    action: Annotated[Name, Meta(description="`cancel run`, for one.")] | None = None
    subject: Annotated[str, Meta(max_length=4000, description="To what it was done.")] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class AuditPage(msgspec.Struct, frozen=True):
    entries: list[Entry]
    next: Next | None


@table.add("GET", "/audit", Role.ADMIN)
async def list_audit(desk: Desk, query: AuditQuery) -> AuditPage:
    """What people did by hand, the last first."""
    before = number(query.cursor, audit.NEWEST)
    asked = audit.entries(
        query.limit + 1, before, who=query.who, action=query.action, subject=query.subject
    )
    _, found = await desk.ask(ticks.hurry(), asked)
    page = [shape(Entry, each, detail=msgspec.Raw(each.detail)) for each in found[: query.limit]]
    return AuditPage(page, cursor(page[-1].id) if len(found) > query.limit else None)
