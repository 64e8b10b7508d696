"""One example request for each operation of the HTTP API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from support.site_client import SiteClient

Example = tuple[str, dict[str, Any]]
Prepare = Callable[[SiteClient], Awaitable[Example]]
EXAMPLES: dict[tuple[str, str], Prepare] = {}
