"""Every page, requested with every role: the table of pages defines the role that each requires. A page
without an entry in `EXAMPLES` fails here.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from rota import Rota
from rota.model.access import Role
from rota.web import api, dashboard
from rota.web.auth import route_roles
from rota.web.site import ALL_PARTS
from support.api_requests import EXAMPLES as DEEDS
from support.live_stream import stream
from support.site_client import PASSES, SECRET, SiteClient

ROUTES = {
    path: role
    for method, path, role in route_roles(dashboard.routes(Rota("postgresql://nowhere/at_all")))
    if method == "GET"
}
PAGES = {page.path: page.role for page in dashboard.PAGES}
WRITES = [
    (method, path)
    for method, path, _ in route_roles(api.routes(Rota("postgresql://nowhere/at_all")))
    if method != "GET"
]

EXAMPLES = {path: path for path in PAGES if "{" not in path} | {
    "/queues/{queue:path}": "/queues/slow",
    "/flows/{name:path}": "/flows/etl",
    "/runs/{run}": "/runs/{run}",
    "/schedules/{name:path}": "/schedules/{schedule}",
}


async def _example(readers: SiteClient, path: str) -> str:
    """Return an existing address of this page."""
    found = EXAMPLES[path]
    if found == "/queues/slow":
        await readers.start("stumble", input={"word": SECRET})
    elif "{run}" in found:
        found = found.format(run=await readers.start("etl", input={"day": SECRET}))
    elif "{schedule}" in found:
        name = f"page-{uuid4()}"
        schedule = {"name": name, "task": "greet", "every": 3600, "input": {"name": SECRET}}
        await readers.done("POST", "/api/v1/schedules", json=schedule)
        found = found.format(schedule=name)
    return found


def test_pages_each_have_an_example() -> None:
    assert PAGES.keys() == EXAMPLES.keys()
    assert ROUTES.keys() == PAGES.keys() | {"/live", "/login", "/static/{version}/{name}"}
    assert (ROUTES["/login"], ROUTES["/static/{version}/{name}"]) == (None, None)


@pytest.mark.parametrize("path", PAGES)
async def test_page_accepts_only_its_role_and_higher_roles(
    page_client: SiteClient, path: str
) -> None:
    at = await _example(page_client, path)
    for who in PASSES:
        page = await page_client.ask("GET", at, who=who)
        if who in ("nobody", "expired", "revoked"):
            assert page.status_code == 303, who
            assert page.headers["location"].startswith("/login?next=")
            refused = 401
        elif Role.parse(who) < PAGES[path]:
            assert page.status_code == 403, who
            refused = 403
        else:
            assert page.status_code == 200, f"{who}: {page.text}"
            continue
        live = await page_client.ask("GET", "/live", who=who, params={"page": at})
        assert live.status_code == refused, who


async def test_pages_viewer_does_not_see_payloads_or_errors(
    page_client: SiteClient, site_app: Rota
) -> None:
    runs = [
        await page_client.start("stumble", input={"word": SECRET}),
        await page_client.start("greet", input={"name": SECRET}),
        await page_client.start("etl", input={"day": SECRET}),
        await page_client.start("approve"),
    ]
    answer = {"name": "answer", "payload": {"by": SECRET}}
    await page_client.done("POST", f"/api/v1/runs/{runs[-1]}/signals", json=answer)
    async with site_app.worker(concurrency=4), asyncio.timeout(60):
        for run in runs[1:]:
            await site_app.run(int(run)).result()
        # It is retried later: one failure is enough here.
        while await site_app.run(int(runs[0])).status() != "sleeping":
            await asyncio.sleep(0.02)
    await page_client.done("POST", "/api/v1/queues/slow/pause", json={"reason": SECRET})
    addresses = [await _example(page_client, path) for path in PAGES if PAGES[path] is Role.VIEWER]
    addresses += [f"/runs/{run}" for run in runs]
    addresses += [f"/runs?find={SECRET}", f"/runs?find={SECRET[:6]}", "/flows/stumble"]
    try:
        for at in addresses:
            page = await page_client.ask("GET", at, who="viewer")
            assert page.status_code == 200, at
            # The search text is in the address, and therefore on the page.
            assert SECRET not in page.text.replace(at.partition("=")[2] or "\0", ""), at
            async with stream(page_client.site, at, page_client.passes["viewer"]) as seen:
                async for kind, part in seen.events():
                    if kind == "refreshed":
                        break
                    said = str(part).replace(at.partition("=")[2] or "\0", "")
                    assert SECRET not in said, (at, kind)
    finally:
        await page_client.done("POST", "/api/v1/queues/slow/resume", json={})
    shown = [await page_client.ask("GET", f"/runs/{run}", who="operator") for run in runs]
    assert all(SECRET in page.text for page in shown)


async def test_read_only_site_refuses_every_write_route(
    page_client: SiteClient, site_app: Rota
) -> None:
    async with SiteClient(site_app, parts=ALL_PARTS, read_only=True) as lookers:
        for method, path in WRITES:
            at, more = await DEEDS[method, path](page_client)
            answer = await lookers.ask(method, at, **{"json": {}, **more})
            assert answer.json()["error"]["code"] == "read_only", (method, path)
