"""The dashboard: pages for people, drawn on the server from what the command line and the API ask, live
while somebody looks. What a page does, it does through the API: the same roles, the same audit.

A page is a function in a module of its own, with a template of its name. `pages` says what a page is,
`live` how it stays current, `shown` what every template may use.
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
    """The routes of the dashboard; each says whom it is for."""
    return [
        *(page.route(app) for page in PAGES),
        LiveStreams(app, PAGES).route(),
        *login.routes(),
        *static_files.routes(),
    ]
