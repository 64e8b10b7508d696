"""Style, scripts and the icon: files of this package, under an address that changes when one of them does,
so a browser may keep them for good.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rota.drawing.palette import DAY, NIGHT, Palette
from rota.web.answers import Refused
from rota.web.auth import open_to_all

HERE = Path(__file__).parent / "static"
KINDS = {
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
        raise Refused(404, "not_found", f"there is no file {name!r:.60}")
    current = request.path_params["version"] == version()
    kept = "public, max-age=31536000, immutable" if current else "no-cache"
    return Response(data, headers={"Cache-Control": kept}, media_type=KINDS[Path(name).suffix])


@cache
def files() -> dict[str, bytes]:
    found = {
        path.name: path.read_bytes() for path in sorted(HERE.iterdir()) if path.suffix in KINDS
    }
    found["palette.css"] = palette().encode()
    return found


@cache
def version() -> str:
    digest = hashlib.sha256()
    for name, data in files().items():
        digest.update(f"{name} {len(data)} ".encode() + data)
    return digest.hexdigest()[:12]


def palette() -> str:
    """The colours of the states, as properties that style sheets and pictures use, by day and by night."""
    dark = f"{{{_properties(NIGHT)}}}"
    graph = "".join(
        f".rota-graph .{state or 'plain'}{{fill:var(--{state or 'plain'}-fill);"
        f"stroke:var(--{state or 'plain'}-line)}}\n"
        f".rota-graph .{state or 'plain'} .dot{{fill:var(--{state or 'plain'}-line)}}\n"
        f".rota-graph .{state or 'plain'} .remark{{fill:var(--{state or 'plain'}-word)}}\n"
        for state in DAY.states
    )
    return (
        f":root{{{_properties(DAY)}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){dark}}}\n"
        f":root[data-theme=dark]{dark}\n"
        ".rota-graph .ground{fill:none}\n"
        ".rota-graph .edges{stroke:var(--graph-edge)}\n"
        ".rota-graph .heads{fill:var(--graph-edge)}\n"
        ".rota-graph .name{fill:var(--graph-name)}\n" + graph
    )


def _properties(colours: Palette) -> str:
    named = {"graph-edge": colours.edge, "graph-name": colours.name}
    for state, ink in colours.states.items():
        word = state or "plain"
        named |= {f"{word}-fill": ink.fill, f"{word}-line": ink.line, f"{word}-word": ink.word}
    return ";".join(f"--{name}:{colour}" for name, colour in named.items())
