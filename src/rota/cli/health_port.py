"""`--health-port` of a worker: health, metrics and autoscale endpoints on their own port."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.cli.exit_codes import FAILED, CommandError
from rota.cli.options.extra import require_extra
from rota.cli.options.web import health_site

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
async def serve_health(app: Rota, health: HealthPort | None) -> AsyncIterator[None]:
    """Serve health from before the worker starts until it has ended, so that probes observe both."""
    if health is None:
        yield
        return
    with require_extra("--health-port", "web"):
        from rota.web.serve import base_url, bind, serving
    health_app = health_site(app, health.auth, health.host)
    try:
        bound = bind(health.host, health.port)
    except OSError as error:
        raise CommandError(
            f"cannot listen at {health.host} port {health.port}: {error.strerror or error}; "
            "choose another with --health-host or --health-port",
            FAILED,
        ) from None
    async with serving(health_app, bound):
        log.info("health at %s", base_url(bound))
        yield
