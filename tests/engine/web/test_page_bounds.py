"""Pages with very many rows, with none, and with unusual cursors."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from rota import Rota
from rota.cli.top.snapshot import SnapshotReader
from rota.web.site import ALL_PARTS
from support.site_client import SiteClient

HTML = {"Accept": "text/html"}


async def test_overview_run_with_hundreds_of_child_jobs_is_listed_once(rota_dsn: str) -> None:
    """A job's 300 child jobs are found first, and each belongs to that job's run."""
    async with Rota(rota_dsn, poll_interval=0.1) as app:

        @app.task
        async def whole() -> None: ...

        async with SiteClient(app, parts=ALL_PARTS) as visitors:
            runs = [await whole.start() for _ in range(4)]
            calls = range(1001, 1301)
            await visitors.sql(
                "insert into rota.runs (id, parent, input, jobs) values (1000, %s, '{}', %s::bigint[])",
                *(runs[0].id, list(calls)),
            )
            await visitors.sql(
                "insert into rota.jobs (id, run, task, queue, args)"
                " select id, 1000, 'whole', 'default', '{}' from unnest(%s::bigint[]) id",
                list(calls),
            )
            await visitors.sql("delete from rota.queued")
            held = [runs[0].id, *calls[:150]]
            failed = [*(run.id for run in runs[1:]), *calls[150:]]
            await visitors.sql(
                "insert into rota.claims (nonce, worker, jobs, attempts, crashes, seqs)"
                " select gen_random_uuid(), 1, %s::bigint[], array_fill(1::smallint, array[%s]),"
                "        array_fill(0::smallint, array[%s]), %s::bigint[]",
                *(held, len(held), len(held), held),
            )
            await visitors.sql(
                "insert into rota.outcomes (job, state, attempt)"
                " select id, 'failed', 1 from unnest(%s::bigint[]) id",
                failed,
            )
            text = (await visitors.ask("GET", "/")).text
            parts = re.findall(r'data-live="(going|failed)">(.*?)</section>', text, re.DOTALL)
            links = {name: re.findall(r'href="/runs/(\d+)"', part) for name, part in parts}
            assert links == {
                "going": [str(runs[0].id)],
                "failed": [str(run.id) for run in runs[:0:-1]],
            }
            sight = await SnapshotReader((await app.open()).database).read()
            assert [each.run for each in sight.runs] == [runs[0].id]


async def test_run_page_many_child_runs_shows_first_fifty_with_hint(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=0.1) as app:

        @app.task
        async def whole() -> None: ...

        async with SiteClient(app, parts=ALL_PARTS) as visitors:
            run = await whole.start()
            await visitors.sql(
                "insert into rota.runs (id, flow, parent, number, input, jobs)"
                " select 1000 + n, 'part', %s, n, '{}', array[n::bigint] from generate_series(1, 60) n",
                run.id,
            )
            text = (await visitors.ask("GET", f"/runs/{run.id}")).text
            [called] = re.findall(r'data-key="called">(.*?)</section>', text, re.DOTALL)
            assert len(re.findall(r'<tr data-key="10\d\d"', called)) == 50
            assert f"<code>rota show {run.id}</code> lists them all" in called


async def test_queue_page_of_declared_unused_queue_exists(page_client: SiteClient) -> None:
    """No worker serves this queue, and it never had a job."""
    assert (await page_client.ask("GET", "/queues/slow")).status_code == 200
    assert (await page_client.ask("GET", "/queues/nowhere")).status_code == 404


@pytest.mark.parametrize("path", ["/my jobs", "/задачи"])
async def test_site_mounted_at_path_with_special_letters_quotes_links(
    site_app: Rota, path: str
) -> None:
    async with SiteClient(site_app, parts=ALL_PARTS) as visitors:
        token = visitors.passes["admin"]
        visitors.site = Starlette(routes=[Mount(path, app=visitors.site)])
        written = quote(path)
        answer = await visitors.ask("POST", f"{written}/login", who="nobody", json={"token": token})
        assert f"Path={written}" in answer.headers["set-cookie"]
        text = (await visitors.ask("GET", f"{written}/", who="admin")).text
        assert f'data-root="{written}"' in text
        answer = await visitors.ask("GET", f"{written}/runs", who="nobody", headers=HTML)
        assert answer.headers["location"].startswith(f"{written}/login?")
