"""Sign-in and sign-out with a browser.

The token is entered once and kept in a cookie that no script can read and no other site can use.
"""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rota.web.api.router import read_body
from rota.web.auth import guard, open_to_all
from rota.web.dashboard.router import html_response, viewer_of
from rota.web.dashboard.template_helpers import template, viewed_by
from rota.web.responses import HttpError, json_response, mount_path
from rota.web.tokens_auth import TOKEN_COOKIE, LocalAccess, TokenAuthenticator, set_cookie

MAX_BODY_BYTES = 4096

# Excludes addresses that a browser resolves to another site: it reads \ as /, and drops tabs and line
# breaks. Also excludes { and }, which are placeholders for fields of the API's response.
_LOCAL_PATH = re.compile(r"/(?!/)[^\x00-\x20\x7f\\{}]*")


def routes() -> list[Route]:
    return [
        Route("/login", show_login, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


@open_to_all
async def show_login(request: Request) -> Response:
    """Show the form for a token, or the way to the link of a server on this machine."""
    authenticator = guard(request).authenticator
    local = isinstance(authenticator, LocalAccess)
    if not isinstance(authenticator, LocalAccess | TokenAuthenticator):
        return RedirectResponse(f"{mount_path(request.scope)}/", 303)
    with viewed_by(viewer_of(request)):
        text = template("login.html").render(
            title="Come in", next=_return_path(request), local=local
        )
    return html_response(text, 401 if local else 200)


@open_to_all
async def log_in(request: Request) -> Response:
    """Store the token in a cookie if it is valid."""
    authenticator = guard(request).authenticator
    if not isinstance(authenticator, TokenAuthenticator):
        raise HttpError(404, "not_found", "this site has no sign-in")
    data = await read_body(request, MAX_BODY_BYTES)
    try:
        text = msgspec.json.decode(data, type=_SignInBody).token.strip()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise HttpError(422, "invalid", 'say {"token": "rota_…"}') from None
    caller = await authenticator.identify(request, text)
    response = json_response({"name": caller.name, "role": caller.role.text})
    set_cookie(request, response, TOKEN_COOKIE, text)
    return response


@open_to_all
async def log_out(request: Request) -> Response:
    authenticator = guard(request).authenticator
    name = (
        authenticator.cookie_name(request)
        if isinstance(authenticator, LocalAccess)
        else TOKEN_COOKIE
    )
    response = Response(status_code=204)
    response.delete_cookie(name, path=mount_path(request.scope) or "/")
    return response


class _SignInBody(msgspec.Struct):
    token: str


def _return_path(request: Request) -> str:
    """Return the page to go back to after sign-in: a path of this site, or "/"."""
    path = request.query_params.get("next", "/")
    return path if _LOCAL_PATH.fullmatch(path) else "/"
