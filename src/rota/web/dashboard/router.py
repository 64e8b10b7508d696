"""Definition of pages.

A page is a function whose annotations define its path and query parameters, as in the API. It returns a
`PageView`. Errors are shown as a page. An unauthenticated viewer is sent to the sign-in page, and back to
the requested page afterwards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from rota.model.access import Role
from rota.operations.arguments import decode_params, decode_query
from rota.operations.declare import OperationContext, parameters_of
from rota.store.read import runs
from rota.web.auth import caller, guard, require_role
from rota.web.dashboard.template_helpers import PageViewer, template, viewed_by
from rota.web.responses import HttpError, mount_path
from rota.web.tokens_auth import TOKEN_COOKIE, LocalAccess, TokenAuthenticator, set_cookie

if TYPE_CHECKING:
    from rota.app import Rota

Handler = TypeVar("Handler", bound=Callable[..., Awaitable["PageView"]])

CONTENT_SECURITY_POLICY = "; ".join(
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
"""Allow only scripts and styles from this site, and none inline."""


class PageView:
    """A template and its variables. Blocks named `live_…` are updated while the page is open."""

    def __init__(self, template: str, *, title: str | None = None, **variables: Any) -> None:
        self.template = template
        self.title = title
        self.variables = variables


class RedirectTo(Exception):
    """Raised by a page to redirect to another page of this site."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    title: str
    role: Role
    handler: Callable[..., Awaitable[PageView]]
    params: dict[str, Any] = field(default_factory=dict)
    query: type[msgspec.Struct] | None = None

    async def view(self, context: OperationContext, request: Request) -> PageView:
        """Call the page's function with the parameters of the request and return its view."""
        arguments = decode_params(self.params, request.path_params)
        if self.query is not None:
            # A form also sends its empty fields.
            items = [each for each in request.query_params.multi_items() if each[1]]
            arguments["query"] = decode_query(self.query, items)
        view = await self.handler(context, **arguments)
        view.title = view.title or self.title
        return view

    def route(self, app: Rota) -> Route:
        async def endpoint(request: Request) -> Response:
            context = OperationContext(app, caller(request))
            try:
                view = await self.view(context, request)
            except RedirectTo as found:
                return RedirectResponse(mount_path(request.scope) + found.path, 303)
            variables = {**view.variables, **await layout_variables(context)}
            with viewed_by(viewer_of(request)):
                text = template(view.template).render(title=view.title, **variables)
            return html_response(text)

        endpoint.__name__ = endpoint.__qualname__ = self.handler.__name__
        guarded = require_role(self.role, error_page)(endpoint)
        return Route(self.path, guarded, methods=["GET"], name=f"page {self.path}")


class Pages:
    """Pages in matching order."""

    def __init__(self) -> None:
        self.pages: list[Page] = []

    def page(
        self, path: str, *, title: str, role: Role = Role.VIEWER
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            kinds = parameters_of(handler)
            query = kinds.pop("query", None)
            self.pages.append(Page(path, title, role, handler, kinds, query))
            return handler

        return decorate


async def layout_variables(context: OperationContext) -> dict[str, Any]:
    """Return the variables of the layout that all pages share."""
    [[now], [open_alerts]] = await context.read(runs.database_time(), runs.count_open_alerts())
    return {
        "now": now,
        "open_alerts": open_alerts,
        "may_see_payloads": context.may_see_payloads,
    }


def viewer_of(request: Request) -> PageViewer:
    found = request.scope.get("rota.caller")
    return PageViewer(
        found,
        mount_path(request.scope),
        path_of(request),
        guard(request).read_only,
        TOKEN_COOKIE in request.cookies,
    )


def path_of(request: Request) -> str:
    """Return the path within this site, without the mount path."""
    root = request.scope.get("root_path", "")
    path: str = request.scope["path"]
    return path.removeprefix(root) or "/"


def html_response(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, {"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def error_page(request: Request, error: HttpError) -> Response:
    """Return a page with the error, or a redirect to the sign-in page if the viewer is unauthenticated.

    A page that was opened with the key of a local server is loaded again without it, from a cookie.
    """
    authenticator = guard(request).authenticator
    if error.status == 401 and isinstance(authenticator, LocalAccess):
        if authenticator.is_key(request.query_params.get("key", "")):
            url = request.url.remove_query_params("key")
            redirect = RedirectResponse(f"{url.path}?{url.query}".rstrip("?"), 303)
            set_cookie(request, redirect, authenticator.cookie_name(request), authenticator.key)
            return redirect
        return RedirectResponse(f"{mount_path(request.scope)}/login", 303)
    if error.status == 401 and isinstance(authenticator, TokenAuthenticator):
        path = path_of(request) + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(
            f"{mount_path(request.scope)}/login?{urlencode({'next': path})}", 303
        )
    with viewed_by(viewer_of(request)):
        text = template("refused.html").render(
            title=_TITLES.get(error.status, "The request failed"), error=error
        )
    response = html_response(text, error.status)
    response.headers.update(error.headers)
    return response


_TITLES = {
    401: "Sign in",
    403: "Access denied",
    404: "Page not found",
    422: "Invalid request",
    503: "The database does not answer",
}
