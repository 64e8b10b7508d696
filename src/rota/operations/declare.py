"""Declaration of an operation.

An operation is a function whose annotations define its parameters, its query (`query`), its body (`body`)
and its document. HTTP routes, OpenAPI and MCP tools are derived from the declaration, and commands call
the same function, so they agree.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

import msgspec

from rota.errors import RotaError
from rota.model.access import Caller, Role
from rota.operations.documents import document_type, to_document
from rota.operations.refusals import Forbidden, TooSlow, status_of
from rota.store import pg_errors
from rota.store.query import Query
from rota.store.read import runs

if TYPE_CHECKING:
    from rota.app import Rota

Document = TypeVar("Document")

CALL_TIMEOUT_SECONDS = 40.0
"""Timeout of a call over HTTP or MCP, including reconnects while the database is unavailable."""

READ_TIMEOUT_SECONDS = 5.0
"""Statement timeout of a read."""


@dataclass(frozen=True, slots=True)
class OperationContext:
    """The app and the caller of one operation."""

    app: Rota
    caller: Caller
    search_seconds: float | None = None
    """Time after which a search for runs scans no further rows; None for the default."""

    @property
    def may_see_payloads(self) -> bool:
        """True if the caller may see inputs and results of runs."""
        return self.caller.has_role(Role.OPERATOR)

    async def read(self, *queries: Query[Any]) -> list[Any]:
        """Return the rows of each query, read in one transaction with a statement timeout."""
        database = (await self.app.open()).database
        try:
            [[_, *rows]] = await database.pipeline(
                [[runs.set_timeout(READ_TIMEOUT_SECONDS), *queries]]
            )
        except Exception as error:
            if pg_errors.sqlstate(error) != "57014":
                raise
            raise TooSlow(
                f"the database did not find it within {READ_TIMEOUT_SECONDS:g} s; ask for less"
            ) from None
        return rows

    async def now(self) -> datetime:
        """Return the database's time."""
        [[now]] = await self.read(runs.database_time())
        assert isinstance(now, datetime)
        return now


@dataclass(frozen=True, slots=True)
class Operation(Generic[Document]):
    """A list that callers read, or an action that they perform."""

    method: str
    """HTTP method; GET for a read."""
    path: str
    """HTTP path below the API's prefix."""
    role: Role
    """Least role of the caller."""
    tag: str
    summary: str
    handler: Callable[..., Awaitable[Document]]
    status: int = 200
    """HTTP status of success."""
    audit: str | None = None
    """Action in the audit log; None for an operation that is not audited."""
    refuses: tuple[type[RotaError], ...] = ()
    """Errors in addition to those of every operation."""
    params: dict[str, Any] = field(default_factory=dict)
    """Parameters that name the object, and their types."""
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    returns: Any = None

    @property
    def response(self) -> Any:
        """Type of the document."""
        return document_type(self.returns)

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def error_statuses(self) -> tuple[int, ...]:
        return tuple(status_of(each) for each in self.refuses)

    @property
    def success_statuses(self) -> tuple[int, ...]:
        """HTTP statuses of success; include 200 if the body has a `key`, for a run that already exists."""
        found_by_key = self.body is not None and "key" in self.body.__struct_fields__
        return (self.status, 200) if found_by_key else (self.status,)

    async def perform(self, context: OperationContext, **arguments: Any) -> Any:
        """Call the operation. Return its document, without values that the caller may not see."""
        found = await self.call(context, **arguments)
        return to_document(found, visible=context.may_see_payloads)

    async def call(self, context: OperationContext, **arguments: Any) -> Document:
        """Call the operation. Return its rows, for code of this process that may see all values.

        Raise Forbidden if the caller's role is below the operation's.
        """
        if not context.caller.has_role(self.role):
            raise Forbidden(
                f"{self.name} needs the role {self.role.text}; {context.caller.name} has the role "
                f"{context.caller.role.text}"
            )
        return await self.handler(context, **arguments)


def parameters_of(handler: Callable[..., object]) -> dict[str, Any]:
    """Return the parameters that callers of an operation or a page give, and their types."""
    hints = get_type_hints(handler, include_extras=True)
    return {
        name: hints[name] for name in inspect.signature(handler).parameters if name != "context"
    }


class OperationGroup:
    """Operations on one kind of object, in the order of their declaration."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self.operations: list[Operation[Any]] = []

    def operation(
        self,
        route: str,
        role: Role,
        *,
        status: int = 200,
        audit: str | None = None,
        refuses: tuple[type[RotaError], ...] = (),
    ) -> Callable[[Callable[..., Awaitable[Document]]], Operation[Document]]:
        """Declare an operation; `route` is its HTTP method and path."""
        method, _, path = route.partition(" ")

        def decorate(handler: Callable[..., Awaitable[Document]]) -> Operation[Document]:
            kinds = parameters_of(handler)
            found = Operation(
                method,
                path,
                role,
                self._tag,
                " ".join((handler.__doc__ or "").split()),
                handler,
                status,
                audit,
                refuses,
                query=kinds.pop("query", None),
                body=kinds.pop("body", None),
                params=kinds,
                returns=get_type_hints(handler, include_extras=True)["return"],
            )
            self.operations.append(found)
            return found

        return decorate
