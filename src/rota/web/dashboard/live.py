"""How a page stays current: while it is looked at, the parts of it that are live are rendered again, and
those that have changed are sent, as server-sent events.

However many look at the same page with the same role, it is rendered once a moment for all of them. A page
that is dear is rendered more rarely, so that looking never costs the database more than a small share of
its time. A stream ends after a while and is asked for anew: whose token was revoked sees nothing more, and
nobody who looks keeps a server from leaving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route

from rota.errors import RotaError
from rota.model.access import Role
from rota.web.answers import Refused, log_failure, refused_by
from rota.web.api.operations import Desk
from rota.web.auth import caller, needs
from rota.web.dashboard.pages import Elsewhere, Page, looking, surroundings
from rota.web.dashboard.shown import Looking, seen_by, template

if TYPE_CHECKING:
    from rota.app import Rota

EVERY = 1.0
"""Seconds from one look to the next."""

SHARE = 0.1
"""… or longer, so that rendering takes no larger share of the time."""

LASTS = 30.0
"""Seconds after which a stream ends and is asked for anew."""

AFTER_ERROR = 2.0
"""Seconds until the next look after one that failed."""

NAP = 1.0
"""Seconds within which a stream notices that its server leaves."""

LOOKED_AT = 500
"""Streams at once in one process."""

PREFIX = "live_"

Parts = dict[str, str]


@dataclass(slots=True)
class _Look:
    """The last look at one page, shared by all who look at it."""

    parts: asyncio.Task[Parts]
    again: float
    """When it is too old, by the clock that only moves forward."""


class Live:
    def __init__(self, app: Rota, pages: Sequence[Page]) -> None:
        self._app = app
        self._pages = [(page, page.route(app)) for page in pages]
        self._looks: dict[tuple[str, str, Role, bool], _Look] = {}
        self._streams = 0

    def route(self) -> Route:
        @needs(Role.VIEWER)
        async def live(request: Request) -> Response:
            """What changes on the page `at`."""
            at = request.query_params.get("at", "/")
            page, wanted = self._find(at)
            if not caller(request).may(page.role):
                raise Refused(403, "forbidden", f"this page is for {page.role.word}s")
            if self._streams >= LOOKED_AT:
                raise Refused(503, "too_many", "too many look at pages here; try again later")
            seen = looking(request)
            who = Looking(
                caller(request), seen.root, wanted.url.path, seen.read_only, seen.can_leave
            )
            return StreamingResponse(
                self._stream(at, page, wanted, who),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )

        return Route("/live", live, methods=["GET"])

    def _find(self, at: str) -> tuple[Page, Request]:
        try:
            parts = urlsplit(at)
        except ValueError:
            parts = urlsplit("//nowhere")
        scope = {
            "type": "http",
            "method": "GET",
            "path": unquote(parts.path),
            "query_string": parts.query.encode(),
            "headers": [],
        }
        for page, route in self._pages if at.startswith("/") and not parts.netloc else ():
            match, more = route.matches(scope)
            if match is Match.FULL:
                return page, Request({**scope, **more})
        raise Refused(404, "not_found", f"there is no page {parts.path!r:.100}")

    async def _stream(
        self, at: str, page: Page, wanted: Request, who: Looking
    ) -> AsyncIterator[bytes]:
        self._streams += 1
        sent: Parts = {}
        ends = time.monotonic() + LASTS
        try:
            yield b"retry: 1000\n\n"
            while time.monotonic() < ends and not self._app.readiness.draining:
                try:
                    parts, again = await self._latest(at, page, wanted, who)
                except Refused as error:
                    # Not as one that was looked at: what is on the page is old, and is said to be.
                    yield _event("refused", {"message": error.message})
                    await asyncio.sleep(AFTER_ERROR)
                    continue
                except Exception as error:
                    # It was answered already: there is nobody else to tell.
                    log_failure("/live of", at.partition("?")[0], error)
                    yield _event("refused", {"message": "this went wrong, and was logged"})
                    return
                for name, html in parts.items():
                    if sent.get(name) != html:
                        yield _event("part", {"name": name, "html": html})
                # Also with nothing new: who has gone is noticed when something is sent.
                yield b"event: looked\ndata:\n\n"
                sent = parts
                await self._rest(min(again, ends))
        finally:
            self._streams -= 1

    async def _rest(self, until: float) -> None:
        """In naps: who looks at what is dear keeps no server from leaving either."""
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, NAP))
            if self._app.readiness.draining:
                return

    async def _latest(
        self, at: str, page: Page, wanted: Request, who: Looking
    ) -> tuple[Parts, float]:
        """The parts as they were a moment ago at most, and when it is worth asking again."""
        assert who.caller is not None
        key = (at, who.root, who.caller.role, who.read_only)  # two with the same role see the same
        look = self._looks.get(key)
        if look is None or (look.parts.done() and look.again <= time.monotonic()):
            task = asyncio.create_task(self._render(page, wanted, who), name="rota live page")
            look = self._looks[key] = _Look(task, time.monotonic() + EVERY)
            began = time.monotonic()

            def rendered(task: asyncio.Task[Parts]) -> None:
                took = time.monotonic() - began
                look.again = began + max(EVERY, took / SHARE)
                self._forget()
                if not task.cancelled():
                    task.exception()  # whoever waits for it is told

            task.add_done_callback(rendered)
        parts = await asyncio.shield(look.parts)
        return parts, look.again

    async def _render(self, page: Page, wanted: Request, who: Looking) -> Parts:
        assert who.caller is not None
        desk = Desk(self._app, who.caller)
        try:
            view = await page.view(desk, wanted)
            given = {**view.given, **await surroundings(desk), "title": view.title}
        except RotaError as error:
            raise refused_by(error) from None
        except Elsewhere:
            raise Refused(404, "not_found", "this page is elsewhere now; load it again") from None
        found: Parts = {}
        with seen_by(who):
            for name in ("base.html", view.template):
                made = template(name)
                context = made.new_context(given)
                for block, render in made.blocks.items():
                    if block.startswith(PREFIX):
                        found[block.removeprefix(PREFIX)] = "".join(render(context))
        return found

    def _forget(self) -> None:
        now = time.monotonic()
        for key in [
            key for key, look in self._looks.items() if look.parts.done() and look.again + 5 < now
        ]:
            del self._looks[key]


def _event(kind: str, data: dict[str, str]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(data))
