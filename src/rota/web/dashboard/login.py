"""Coming in and leaving with a browser: a token is shown once, and kept in a cookie that no script can read
and no other site can use.
"""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rota.web.answers import Refused, answer
from rota.web.api.operations import read_body
from rota.web.auth import guard, open_to_all
from rota.web.dashboard.pages import looking, page
from rota.web.dashboard.shown import seen_by, template
from rota.web.doorman import COOKIE, LocalAccess, Tokens, set_cookie
from rota.web.requests import root_of

BODY = 4096

# Not what a browser would take for another site: it reads \ as /, and leaves out tabs and line ends. Nor
# { and }, which stand for what the API answers.
_PAGE = re.compile(r"/(?!/)[^\x00-\x20\x7f\\{}]*")


def routes() -> list[Route]:
    return [
        Route("/login", show_login, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


@open_to_all
async def show_login(request: Request) -> Response:
    """Show the form for a token, or where to find the link of a server on this machine."""
    doorman = guard(request).doorman
    local = isinstance(doorman, LocalAccess)
    if not isinstance(doorman, LocalAccess | Tokens):
        return RedirectResponse(f"{root_of(request.scope)}/", 303)
    with seen_by(looking(request)):
        text = template("login.html").render(title="Come in", next=_back(request), local=local)
    return page(text, 401 if local else 200)


@open_to_all
async def log_in(request: Request) -> Response:
    """Keep the token in a cookie, if it is good."""
    doorman = guard(request).doorman
    if not isinstance(doorman, Tokens):
        raise Refused(404, "not_found", "nobody needs to say here who he is")
    data = await read_body(request, BODY)
    try:
        text = msgspec.json.decode(data, type=_Shown).token.strip()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Refused(422, "invalid", 'say {"token": "rota_…"}') from None
    caller = await doorman.identify(request, text)
    response = answer({"name": caller.name, "role": caller.role.word})
    set_cookie(request, response, COOKIE, text)
    return response


@open_to_all
async def log_out(request: Request) -> Response:
    doorman = guard(request).doorman
    name = doorman.cookie(request) if isinstance(doorman, LocalAccess) else COOKIE
    response = Response(status_code=204)
    response.delete_cookie(name, path=root_of(request.scope) or "/")
    return response


class _Shown(msgspec.Struct):
    token: str


def _back(request: Request) -> str:
    """Where somebody came from: a page of this site, and nothing else."""
    at = request.query_params.get("next", "/")
    return at if _PAGE.fullmatch(at) else "/"
