"""Functions of every template: addresses, permissions of the viewer, formats of numbers and times.

Templates are rendered with autoescape: user data is always text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from rota.model.access import Caller, Role
from rota.model.text import in_whole_units
from rota.operations.documents import ErrorDetail, error_detail
from rota.operations.table import OPERATIONS
from rota.web.api.router import PREFIX
from rota.web.dashboard import static_files

PACKAGE_DIRECTORY = Path(__file__).parent

_OPERATIONS = {each.name: each for each in OPERATIONS}
_PARAMETER = re.compile(r"\{[^}]+\}")


@dataclass(frozen=True, slots=True)
class PageViewer:
    """Viewer of a page, and the address they use."""

    caller: Caller | None
    mount_path: str = ""
    path: str = "/"
    read_only: bool = False
    can_log_out: bool = False
    """True if the viewer signed in with a token and can sign out."""

    def may(self, operation: str) -> bool:
        """True if the viewer's role allows the operation and the site is not read-only."""
        role = _OPERATIONS[operation].role
        return not self.read_only and self.caller is not None and self.caller.has_role(role)

    @property
    def may_see_payloads(self) -> bool:
        """True if the viewer may see inputs, results and messages of errors."""
        return self.caller is not None and self.caller.has_role(Role.OPERATOR)


_viewer: ContextVar[PageViewer] = ContextVar("viewer")


@contextmanager
def viewed_by(viewer: PageViewer) -> Iterator[None]:
    """Render for this viewer within the block."""
    token = _viewer.set(viewer)
    try:
        yield
    finally:
        _viewer.reset(token)


def url(path: str, **query: Any) -> str:
    """Return the address of a page of this site; query parameters that are None or empty are omitted."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return _viewer.get().mount_path + path + (f"?{urlencode(given)}" if given else "")


def segment(text: object) -> str:
    """Return a name percent-encoded as one path segment."""
    return quote(str(text), safe="")


def sends(operation: str, *names: object) -> Markup:
    """Return the attributes of a form or button that performs an operation on an object."""
    found = _OPERATIONS[operation]
    path = PREFIX + found.path
    for each in names:
        path = _PARAMETER.sub(segment(each), path, count=1)
    return Markup('data-act="{}" data-url="{}"').format(found.method, url(path))


def static(name: str) -> str:
    return f"{_viewer.get().mount_path}/static/{static_files.version()}/{name}"


def format_count(value: float) -> str:
    """Format as a whole number with thousands separators: `1,234,567`."""
    return f"{value:,.0f}"


def format_duration(seconds: float | None) -> str:
    """Format a duration briefly: 3 ms, 1.2 s, 4 min 10 s, 3 h 5 min, 12 d."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s" if seconds < 9.995 else f"{seconds:.0f} s"
    return in_whole_units(seconds, detail_below=48)


def render_code(text: str) -> Markup:
    """Render text as HTML, with `backticks` as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick is an ordinary character
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part
        for number, part in enumerate(parts)
    )


def format_time(at: datetime) -> str:
    """Format as `2026-11-16 15:04:05 UTC`; the browser converts it to the reader's time zone."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso_time(at: datetime) -> str:
    """Format as ISO 8601 in UTC, for programs."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def visible_error(document: bytes | None) -> ErrorDetail | None:
    """Return an error, without its message if the viewer may not see it."""
    return error_detail(document, visible=_viewer.get().may_see_payloads)


@cache
def environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(PACKAGE_DIRECTORY / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "span": format_duration,
        "coded": render_code,
        "number": format_count,
        "moment": format_time,
        "stamp": iso_time,
        "segment": segment,
        "error": visible_error,
        "json": lambda value: json.dumps(value, ensure_ascii=False),
    }
    env.globals |= {
        "url": url,
        "static": static,
        "may": lambda operation: _viewer.get().may(operation),
        "sends": sends,
        "viewer": _viewer.get,
    }
    # Macros are globals: a live block that is rendered alone has no imports.
    macros = env.get_template("parts.html").module
    env.globals |= {name: getattr(macros, name) for name in dir(macros) if not name.startswith("_")}
    return env


def template(name: str) -> Template:
    return environment().get_template(name)
