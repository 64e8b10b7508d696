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

from .visitors import Visitors

HTML = {"Accept": "text/html"}


async def test_a_run_is_found_among_hundreds_of_calls_that_are_none(rota_dsn: str) -> None:
    """A job's 300 child jobs are found first, and each belongs to that job's run."""
    async with Rota(rota_dsn, poll_interval=0.1) as app:

        @app.task
        async def whole() -> None: ...

        async with Visitors(app, parts=ALL_PARTS) as visitors:
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
                "insert into rota.claims (nonce, worker, jobs, attempts, lost, seqs)"
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


async def test_what_a_job_has_called_is_shown_as_far_as_it_can_be_read(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=0.1) as app:

        @app.task
        async def whole() -> None: ...

        async with Visitors(app, parts=ALL_PARTS) as visitors:
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


async def test_a_queue_that_a_task_declares_has_a_page(readers: Visitors) -> None:
    """No worker serves this queue, and it never had a job."""
    assert (await readers.ask("GET", "/queues/slow")).status_code == 200
    assert (await readers.ask("GET", "/queues/nowhere")).status_code == 404


@pytest.mark.parametrize("path", ["/my jobs", "/задачи"])
async def test_it_can_be_mounted_wherever_one_likes(site_app: Rota, path: str) -> None:
    async with Visitors(site_app, parts=ALL_PARTS) as visitors:
        token = visitors.passes["admin"]
        visitors.site = Starlette(routes=[Mount(path, app=visitors.site)])
        written = quote(path)
        answer = await visitors.ask("POST", f"{written}/login", who="nobody", json={"token": token})
        assert f"Path={written}" in answer.headers["set-cookie"]
        text = (await visitors.ask("GET", f"{written}/", who="admin")).text
        assert f'data-root="{written}"' in text
        answer = await visitors.ask("GET", f"{written}/runs", who="nobody", headers=HTML)
        assert answer.headers["location"].startswith(f"{written}/login?")
