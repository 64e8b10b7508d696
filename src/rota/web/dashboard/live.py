"""Live updates: the live blocks of an open page are rendered again, and changed ones are sent as
server-sent events.

Viewers of the same page with the same role share one rendering. An expensive page is rendered less often,
so that open pages use only a small share of the database's time. A stream ends after a while and the
browser reconnects: a revoked token then gets no further data, and open pages do not delay the shutdown of a
server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route

from rota.errors import RotaError, StatementRefused
from rota.model.access import Role
from rota.operations.declare import OperationContext
from rota.web.auth import caller, require_role
from rota.web.dashboard.router import Page, RedirectTo, layout_variables, viewer_of
from rota.web.dashboard.template_helpers import PageViewer, template, viewed_by
from rota.web.responses import HttpError, http_error_for, log_failure

if TYPE_CHECKING:
    from rota.app import Rota

REFRESH_SECONDS = 1.0
"""Interval between two renderings of a page."""

MAX_RENDER_SHARE = 0.1
"""Largest share of time spent rendering one page; the interval is longer if rendering is slow."""

STREAM_SECONDS = 30.0
"""Duration of a stream; the browser then reconnects."""

ERROR_PAUSE_SECONDS = 2.0
"""Pause after a failed rendering."""

DRAIN_CHECK_SECONDS = 1.0
"""Time within which a stream notices that its server drains."""

MAX_STREAMS = 500
"""Limit of concurrent streams in one process."""

BLOCK_PREFIX = "live_"

Parts = dict[str, str]


@dataclass(slots=True)
class _SharedRendering:
    """Last rendering of one page, shared by all its viewers."""

    parts: asyncio.Task[Parts]
    stale_at: float
    """Monotonic time from which the page must be rendered again."""


class LiveStreams:
    def __init__(self, app: Rota, pages: Sequence[Page]) -> None:
        self._app = app
        self._pages = [(page, page.route(app)) for page in pages]
        self._renderings: dict[tuple[str, str, Role, bool], _SharedRendering] = {}
        self._streams = 0

    def route(self) -> Route:
        @require_role(Role.VIEWER)
        async def live(request: Request) -> Response:
            """Stream the changes of the page at the address `page`."""
            address = request.query_params.get("page", "/")
            page, page_request = self._find_page(address)
            if not caller(request).has_role(page.role):
                raise HttpError(403, "forbidden", f"this page needs the role {page.role.text}")
            if self._streams >= MAX_STREAMS:
                raise HttpError(
                    503, "too_many", "too many pages are open on this server; try again later"
                )
            viewer = replace(viewer_of(request), path=page_request.url.path)
            return StreamingResponse(
                self._stream(address, page, page_request, viewer),
                media_type="text/event-stream",
                headers={"X-Accel-Buffering": "no"},
            )

        return Route("/live", live, methods=["GET"])

    def _find_page(self, address: str) -> tuple[Page, Request]:
        try:
            parts = urlsplit(address)
        except ValueError:
            parts = urlsplit("//nowhere")
        scope = {
            "type": "http",
            "method": "GET",
            "path": unquote(parts.path),
            "query_string": parts.query.encode(),
            "headers": [],
        }
        for page, route in self._pages if address.startswith("/") and not parts.netloc else ():
            match, more = route.matches(scope)
            if match is Match.FULL:
                return page, Request({**scope, **more})
        raise HttpError(404, "not_found", f"there is no page {parts.path!r:.100}")

    async def _stream(
        self, address: str, page: Page, page_request: Request, viewer: PageViewer
    ) -> AsyncIterator[bytes]:
        self._streams += 1
        sent: Parts = {}
        ends = time.monotonic() + STREAM_SECONDS
        try:
            yield b"retry: 1000\n\n"
            while time.monotonic() < ends and not self._app.readiness.is_draining:
                try:
                    parts, stale_at = await self._latest(address, page, page_request, viewer)
                except HttpError as error:
                    # No event "refreshed": the content of the page is outdated, and the page shows the
                    # message.
                    yield _event("refused", {"message": error.message})
                    await asyncio.sleep(ERROR_PAUSE_SECONDS)
                    continue
                except Exception as error:
                    # The response has begun: the error can only be logged and sent as an event.
                    log_failure("/live of", address.partition("?")[0], error)
                    yield _event("refused", {"message": "internal error; see the server's log"})
                    return
                for name, html in parts.items():
                    if sent.get(name) != html:
                        yield _event("part", {"name": name, "html": html})
                # Sent even without changes: a closed connection is detected only by sending.
                yield b"event: refreshed\ndata:\n\n"
                sent = parts
                await self._pause(min(stale_at, ends))
        finally:
            self._streams -= 1

    async def _pause(self, until: float) -> None:
        """Sleep in short steps, so that the stream of an expensive page does not delay a shutdown."""
        while (remaining := until - time.monotonic()) > 0:
            await asyncio.sleep(min(remaining, DRAIN_CHECK_SECONDS))
            if self._app.readiness.is_draining:
                return

    async def _latest(
        self, address: str, page: Page, page_request: Request, viewer: PageViewer
    ) -> tuple[Parts, float]:
        """Return parts rendered at most a moment ago, and the time from which a new rendering is due."""
        assert viewer.caller is not None
        # Viewers with the same role see the same.
        key = (address, viewer.mount_path, viewer.caller.role, viewer.read_only)
        rendering = self._renderings.get(key)
        if rendering is None or (rendering.parts.done() and rendering.stale_at <= time.monotonic()):
            task = asyncio.create_task(
                self._render(page, page_request, viewer), name="rota live page"
            )
            rendering = self._renderings[key] = _SharedRendering(
                task, time.monotonic() + REFRESH_SECONDS
            )
            began = time.monotonic()

            def on_rendered(task: asyncio.Task[Parts]) -> None:
                seconds = time.monotonic() - began
                rendering.stale_at = began + max(REFRESH_SECONDS, seconds / MAX_RENDER_SHARE)
                self._drop_stale()
                if not task.cancelled():
                    task.exception()  # retrieved here; waiting streams receive it too

            task.add_done_callback(on_rendered)
        parts = await asyncio.shield(rendering.parts)
        return parts, rendering.stale_at

    async def _render(self, page: Page, page_request: Request, viewer: PageViewer) -> Parts:
        assert viewer.caller is not None
        context = OperationContext(self._app, viewer.caller)
        try:
            view = await page.view(context, page_request)
            variables = {**view.variables, **await layout_variables(context), "title": view.title}
        except StatementRefused:
            raise
        except RotaError as error:
            raise http_error_for(error) from None
        except RedirectTo:
            raise HttpError(404, "not_found", "this page has moved; load it again") from None
        found: Parts = {}
        with viewed_by(viewer):
            for name in ("base.html", view.template):
                page_template = template(name)
                template_context = page_template.new_context(variables)
                for block, render in page_template.blocks.items():
                    if block.startswith(BLOCK_PREFIX):
                        found[block.removeprefix(BLOCK_PREFIX)] = "".join(render(template_context))
        return found

    def _drop_stale(self) -> None:
        now = time.monotonic()
        for key in [
            key
            for key, rendering in self._renderings.items()
            if rendering.parts.done() and rendering.stale_at + 5 < now
        ]:
            del self._renderings[key]


def _event(kind: str, data: dict[str, str]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(data))
