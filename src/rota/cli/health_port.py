"""`--health-port` of a worker: what is answered beside the work, at a port of its own."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.cli.edge import health_site, web_needed
from rota.cli.endings import FAILED, Told

if TYPE_CHECKING:
    from rota import Rota
    from rota.web.site import Auth

log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class HealthPort:
    host: str
    port: int
    auth: Auth


@asynccontextmanager
async def serving(app: Rota, at: HealthPort | None) -> AsyncIterator[None]:
    """Before the work begins, and until it has ended: who watches sees it come and go."""
    if at is None:
        yield
        return
    with web_needed("--health-port"):
        from rota.web import port
        from rota.web.serve import address, bind
    answering = health_site(app, at.auth, at.host)
    try:
        bound = bind(at.host, at.port)
    except OSError as error:
        raise Told(
            f"cannot listen at {at.host} port {at.port}: {error.strerror or error}; say another with "
            "--health-host or --health-port",
            FAILED,
        ) from None
    async with port.serving(answering, bound):
        log.info("health at %s", address(bound))
        yield
