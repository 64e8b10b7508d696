"""Static files of the dashboard: style sheets, scripts and the icon.

Their address contains a digest of all files, so that browsers may cache them forever.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.drawing.palette import DARK, LIGHT, Palette
from rota.web.auth import open_to_all
from rota.web.responses import HttpError

STATIC_DIRECTORY = Path(__file__).parent / "static"
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def routes() -> list[Route]:
    return [Route("/static/{version}/{name}", show_file, methods=["GET"])]


@open_to_all
async def show_file(request: Request) -> Response:
    name = request.path_params["name"]
    data = files().get(name)
    if data is None:
        raise HttpError(404, "not_found", f"there is no file {name!r:.60}")
    current = request.path_params["version"] == version()
    cache_control = "public, max-age=31536000, immutable" if current else "no-cache"
    return Response(
        data, headers={"Cache-Control": cache_control}, media_type=CONTENT_TYPES[Path(name).suffix]
    )


@cache
def files() -> dict[str, bytes]:
    found = {
        path.name: path.read_bytes()
        for path in sorted(STATIC_DIRECTORY.iterdir())
        if path.suffix in CONTENT_TYPES
    }
    found["palette.css"] = palette_css().encode()
    return found


@cache
def version() -> str:
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()[:12]


def palette_css() -> str:
    """Return the state colours as CSS properties for style sheets and graphs, in light and dark mode."""
    dark = f"{{{_properties(DARK)}}}"
    graph = "".join(
        f".rota-graph .{state or 'plain'}{{fill:var(--{state or 'plain'}-fill);"
        f"stroke:var(--{state or 'plain'}-line)}}\n"
        f".rota-graph .{state or 'plain'} .dot{{fill:var(--{state or 'plain'}-line)}}\n"
        f".rota-graph .{state or 'plain'} .remark{{fill:var(--{state or 'plain'}-word)}}\n"
        for state in LIGHT.states
    )
    return (
        f":root{{{_properties(LIGHT)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){dark}}}\n"
        f":root[data-theme=dark]{dark}\n"
        ".rota-graph .ground{fill:none}\n"
        ".rota-graph .edges{stroke:var(--graph-edge)}\n"
        ".rota-graph .heads{fill:var(--graph-edge)}\n"
        ".rota-graph .name{fill:var(--graph-name)}\n" + graph
    )


def _properties(colours: Palette) -> str:
    properties = {"graph-edge": colours.edge, "graph-name": colours.text}
    for state, colors in colours.states.items():
        state_name = state or "plain"
        properties |= {
            f"{state_name}-fill": colors.fill,
            f"{state_name}-line": colors.stroke,
            f"{state_name}-word": colors.text,
        }
    return ";".join(f"--{name}:{colour}" for name, colour in properties.items())
