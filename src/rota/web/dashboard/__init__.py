"""The dashboard: pages for people, rendered on the server and updated live.

Pages read the same queries as the command line and the API. Actions go through the API, with its roles and
its audit log. A page is a function in its own module, with a template of the same name. `router` defines
pages, `live` updates them, `template_helpers` has the functions available in every template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from rota.web.dashboard import (
    alerts,
    audit,
    coordination,
    flows,
    login,
    overview,
    queues,
    runs,
    schedules,
    static_files,
    workers,
)
from rota.web.dashboard.live import LiveStreams
from rota.web.dashboard.router import Page
from rota.web.dashboard.run import page as run_page

if TYPE_CHECKING:
    from rota.app import Rota

PAGES: list[Page] = [
    page
    for module in (
        *(overview, queues, runs, run_page, flows),
        *(workers, schedules, coordination, alerts, audit),
    )
    for page in module.pages.pages
]


def routes(app: Rota) -> list[Route]:
    """Return the routes of the dashboard, each with its required role."""
    return [
        *(page.route(app) for page in PAGES),
        LiveStreams(app, PAGES).route(),
        *login.routes(),
        *static_files.routes(),
    ]
