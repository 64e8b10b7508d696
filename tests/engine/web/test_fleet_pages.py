"""Pages of the fleet, requested without a browser: pagination, and content by role."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest

from rota.web.dashboard.audit import details, page_of
from support.site_client import SiteClient


async def read_page(readers: SiteClient, path: str, who: str = "admin") -> str:
    answer = await readers.ask("GET", path, who=who)
    assert answer.status_code == 200, answer.text
    return answer.text


def next_page_link(page: str, number: int = 0) -> str:
    """Return the address of the link to the next or the older rows."""
    found = re.findall(r'<a [^>]*rel="next"[^>]*>', page)
    leads = re.search(r'href="([^"]*)"', found[number])
    assert leads
    return unescape(leads[1])


def unique_matches(page: str, pattern: str) -> list[str]:
    """Return the matches in the order of the page, each once."""
    return list(dict.fromkeys(re.findall(pattern, page)))


async def test_workers_page_many_workers_are_paged_with_silent_first(
    page_client: SiteClient,
) -> None:
    mark = f"node-{uuid4().hex}"
    await page_client.sql(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, running, last_beat)"
        " select %s || '-' || lpad(n::text, 2, '0'), n, '0', array['q'], array['t'], 10, 7,"
        "        rota.clock() - case when n = 60 then interval '1 h' else interval '0' end"
        "   from generate_series(1, 60) as n",
        mark,
    )
    first = await read_page(page_client, f"/workers?find={mark}")
    hosts = unique_matches(first, rf"{mark}-\d\d")
    assert hosts == [f"{mark}-60", *(f"{mark}-{n:02}" for n in range(1, 50))]
    assert "7 of 10" in first
    assert "1 to 50 of 60" in first
    rest = await read_page(page_client, next_page_link(first))
    assert unique_matches(rest, rf"{mark}-\d\d") == [f"{mark}-{n:02}" for n in range(50, 60)]
    silent = await read_page(page_client, f"/workers?find={mark}&state=silent")
    assert unique_matches(silent, rf"{mark}-\d\d") == [f"{mark}-60"]
    assert "/drain" in silent
    assert "/drain" not in await read_page(page_client, f"/workers?find={mark}", who="viewer")
    await page_client.sql("delete from rota.workers where host like %s", f"{mark}%")


async def test_coordination_page_many_locks_are_paged(page_client: SiteClient) -> None:
    mark = f"many {uuid4()}"
    await page_client.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " select %s || ' ' || lpad(n::text, 2, '0'), n %% 2, nextval('rota.tokens'), gen_random_uuid(),"
        "        'h', 1, rota.clock(), rota.clock() + interval '1 h' from generate_series(1, 60) as n",
        mark,
    )
    first = await read_page(page_client, f"/coordination?lock={quote(mark)}")
    rest = await read_page(page_client, next_page_link(first))
    names = [set(re.findall(rf"{mark} \d\d", page)) for page in (first, rest)]
    assert [len(each) for each in names] == [50, 10]
    assert not names[0] & names[1]


async def test_coordination_page_service_shows_its_last_iterations(page_client: SiteClient) -> None:
    name = f"monitor {uuid4()}"
    await page_client.sql(
        "insert into rota.services (name, every, iteration, started) values (%s, 60, 30, rota.clock())",
        name,
    )
    await page_client.sql(
        "insert into rota.iterations (service, number, term, instance, host, pid, ended, outcome, error)"
        " select %s, n, 7, gen_random_uuid(), 'h', 1, rota.clock(), case when n = 29 then 'failed'"
        "        else 'succeeded' end,"
        '        case when n = 29 then \'{"type": "ValueError", "message": "s3cret"}\'::json end'
        "   from generate_series(1, 30) as n",
        name,
    )
    listed = await read_page(page_client, "/coordination")
    leads = f"/coordination?service={quote_plus(name)}"
    assert f'href="{leads}#iterations"' in listed
    page = await read_page(page_client, leads)
    assert unique_matches(page, r'<tr data-key="(\d+)">') == [str(n) for n in range(30, 10, -1)]
    assert "ValueError: s3cret" in page
    hidden = await read_page(page_client, leads, who="viewer")
    assert "ValueError" in hidden
    assert "s3cret" not in hidden
    await page_client.sql("delete from rota.services where name = %s", name)


async def test_alerts_page_cleared_alerts_are_paged(page_client: SiteClient) -> None:
    kind = f"kind {uuid4()}"
    await page_client.sql(
        "insert into rota.alerts (kind, subject, message, host, pid, cleared)"
        " select %s, 's' || n, 'it was so', 'h', 1, rota.clock() from generate_series(1, 60) as n"
        "  order by n",
        kind,
    )
    first = await read_page(page_client, "/alerts", who="viewer")
    assert unique_matches(first, r">s(\d+)<") == [str(n) for n in range(60, 10, -1)]
    rest = await read_page(page_client, next_page_link(first), who="viewer")
    assert unique_matches(rest, r">s(\d+)<")[:10] == [str(n) for n in range(10, 0, -1)]
    assert "/api/v1/alerts" not in first
    await page_client.sql("delete from rota.alerts where kind = %s", kind)


async def test_schedules_page_many_schedules_are_paged(page_client: SiteClient) -> None:
    mark = f"many {uuid4()}"
    await page_client.sql(
        "insert into rota.schedules (name, declared, kind, target, input, every, anchor)"
        " select %s || ' ' || lpad(n::text, 2, '0'), false, 'task', 'greet', '{}', 60, rota.clock()"
        "   from generate_series(1, 60) as n",
        mark,
    )
    first = await read_page(page_client, f"/schedules?prefix={quote(mark)}")
    rest = await read_page(page_client, next_page_link(first))
    pages = [unique_matches(unescape(page), rf"{mark} (\d\d)") for page in (first, rest)]
    assert [len(each) for each in pages] == [50, 10]
    assert pages[0] + pages[1] == sorted(pages[0] + pages[1])
    await page_client.sql("delete from rota.schedules where name like %s", f"{mark}%")


@pytest.mark.parametrize("who", ["viewer", "operator"])
async def test_audit_page_below_admin_is_forbidden(page_client: SiteClient, who: str) -> None:
    answer = await page_client.ask("GET", "/audit", who=who)
    assert answer.status_code == 403
    assert "this action needs the role admin" in answer.text
    assert (await page_client.ask("GET", "/live?page=/audit", who=who)).status_code == 403


async def test_pages_stored_html_is_escaped(page_client: SiteClient) -> None:
    evil = f'<script>alert(1)</script>\' onload="x" {uuid4()}'
    await page_client.done(
        "POST",
        "/api/v1/schedules",
        json={"name": evil, "task": "approve", "every": 3600, "tenant": evil},
    )
    await page_client.sql(
        "insert into rota.alerts (kind, subject, message, host, pid) values (%s, %s, %s, %s, 1)",
        *[evil] * 4,
    )
    await page_client.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, label, acquired, expires)"
        " values (%s, 0, 1, gen_random_uuid(), %s, 1, %s, now(), now() + interval '1 h')",
        *[evil] * 3,
    )
    paths = ("/schedules", f"/schedules/{quote(evil, safe='')}", "/alerts", "/audit")
    for path in (*paths, f"/coordination?lock={quote(evil)}"):
        page = await read_page(page_client, path)
        assert "&lt;script&gt;" in page, path
        assert "<script>alert" not in page, path
        assert 'onload="x"' not in page, path
    await page_client.sql("delete from rota.alerts where kind = %s", evil)


@pytest.mark.parametrize("path", ["/workers?page=0", "/alerts?before=x", "/schedules?state=lost"])
async def test_pages_invalid_query_is_refused_with_html(page_client: SiteClient, path: str) -> None:
    answer = await page_client.ask("GET", path)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")


def test_audit_entry_links_to_its_subject_and_formats_details() -> None:
    assert page_of("cancel run", "7") == "/runs/7"
    assert page_of("cancel run", "7/../8") is None
    assert page_of("pause schedule", "a/b?") == "/schedules/a%2Fb%3F"
    assert page_of("create token", "x") is None
    assert details(b'{"until": "2026-11-16T18:15:13.790858+00:00", "pid": 7, "label": null}') == [
        *(("until", "2026-11-16 18:15:13 UTC"), ("pid", "7"))
    ]
