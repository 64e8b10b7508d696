"""What a page is: a function whose annotations say what it takes from the path and from the query, as in
the API, and which answers a `View`. Whoever is refused is told so on a page; whoever is not known may say
who he is, and comes back to where he was.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from rota.model.access import Role
from rota.store import views
from rota.web.answers import Refused
from rota.web.api.operations import Desk, from_path, from_query
from rota.web.auth import caller, guard, needs
from rota.web.dashboard.shown import Looking, seen_by, template
from rota.web.doorman import COOKIE, LocalAccess, Tokens, set_cookie
from rota.web.requests import root_of

if TYPE_CHECKING:
    from rota.app import Rota

Handler = TypeVar("Handler", bound=Callable[..., Awaitable["View"]])

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""Nothing from elsewhere, and nothing that stands in the page itself, is run or obeyed as style."""


class View:
    """What a page shows: a template and what it is given. Blocks of it that are named `live_…` stay
    current while somebody looks."""

    def __init__(self, template: str, *, title: str | None = None, **given: Any) -> None:
        self.template = template
        self.title = title
        self.given = given


class Elsewhere(Exception):
    """What is looked for is on another page of this site."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    role: Role
    handler: Callable[..., Awaitable[View]]
    params: dict[str, Any] = field(default_factory=dict)
    query: type[msgspec.Struct] | None = None

    async def view(self, desk: Desk, request: Request) -> View:
        """What it shows whoever asks, of what is there now."""
        arguments = from_path(self.params, request)
        if self.query is not None:
            # A form sends its empty fields, too.
            items = [each for each in request.query_params.multi_items() if each[1]]
            arguments["query"] = from_query(self.query, items)
        view = await self.handler(desk, **arguments)
        view.title = view.title or self.title
        return view

    def route(self, app: Rota) -> Route:
        async def endpoint(request: Request) -> Response:
            desk = Desk(app, caller(request))
            try:
                view = await self.view(desk, request)
            except Elsewhere as found:
                return RedirectResponse(root_of(request.scope) + found.path, 303)
            given = {**view.given, **await surroundings(desk)}
            with seen_by(looking(request)):
                text = template(view.template).render(title=view.title, **given)
            return page(text)

        endpoint.__name__ = endpoint.__qualname__ = self.handler.__name__
        guarded = needs(self.role, refused_page)(endpoint)
        return Route(self.path, guarded, methods=["GET"], name=f"page {self.path}")


class Pages:
    """Pages, in the order in which they are looked through."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def page(
        self, path: str, *, title: str, role: Role = Role.VIEWER
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            hints = get_type_hints(handler, include_extras=True)
            hints = {name: hints[name] for name in inspect.signature(handler).parameters}
            hints.pop("desk")
            query = hints.pop("query", None)
            self.pages.append(Page(path, title, role, handler, hints, query))
            return handler

        return decorate


async def surroundings(desk: Desk) -> dict[str, Any]:
    """What stands around every page."""
    [[now], [open_alerts]] = await desk.ask(views.clock(), views.open_alerts())
    return {"now": now, "open_alerts": open_alerts}


def looking(request: Request) -> Looking:
    known = request.scope.get("rota.caller")
    return Looking(
        known,
        root_of(request.scope),
        path_of(request),
        guard(request).read_only,
        COOKIE in request.cookies,
    )


def path_of(request: Request) -> str:
    """Of this site: without where it is mounted."""
    root = request.scope.get("root_path", "")
    path: str = request.scope["path"]
    return path.removeprefix(root) or "/"


def page(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, {"Content-Security-Policy": POLICY})


def refused_page(request: Request, error: Refused) -> Response:
    """Why there is no page; whoever is not known is asked who he is.

    A page that was opened with the key of a local server is loaded again without it, from a cookie.
    """
    doorman = guard(request).doorman
    if error.status == 401 and isinstance(doorman, LocalAccess):
        if doorman.is_key(request.query_params.get("key", "")):
            url = request.url.remove_query_params("key")
            again = RedirectResponse(f"{url.path}?{url.query}".rstrip("?"), 303)
            set_cookie(request, again, doorman.cookie(request), doorman.key)
            return again
        return RedirectResponse(f"{root_of(request.scope)}/login", 303)
    if error.status == 401 and isinstance(doorman, Tokens):
        at = path_of(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{root_of(request.scope)}/login?{urlencode({'next': at})}", 303)
    with seen_by(looking(request)):
        text = template("refused.html").render(
            title=_TITLES.get(error.status, "This did not work"), error=error
        )
    response = page(text, error.status)
    response.headers.update(error.headers)
    return response


_TITLES = {
    401: "Who are you?",
    403: "This is not for you",
    404: "There is nothing here",
    422: "This cannot be asked",
    503: "The database does not answer",
}
