"""Pages of the fleet, requested without a browser: pagination, and content by role."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import quote, quote_plus
from uuid import uuid4

import pytest

from rota.web.dashboard.audit import details, page_of

from .visitors import Visitors


async def read(readers: Visitors, path: str, who: str = "admin") -> str:
    answer = await readers.ask("GET", path, who=who)
    assert answer.status_code == 200, answer.text
    return answer.text


def following(page: str, number: int = 0) -> str:
    """Return the address of the link to the next or the older rows."""
    found = re.findall(r'<a [^>]*rel="next"[^>]*>', page)
    leads = re.search(r'href="([^"]*)"', found[number])
    assert leads
    return unescape(leads[1])


def told(page: str, pattern: str) -> list[str]:
    """Return the matches in the order of the page, each once."""
    return list(dict.fromkeys(re.findall(pattern, page)))


async def test_many_workers_come_page_by_page_those_in_trouble_first(readers: Visitors) -> None:
    mark = f"node-{uuid4().hex}"
    await readers.sql(
        "insert into rota.workers (host, pid, version, queues, tasks, capacity, running, last_beat)"
        " select %s || '-' || lpad(n::text, 2, '0'), n, '0', array['q'], array['t'], 10, 7,"
        "        rota.clock() - case when n = 60 then interval '1 h' else interval '0' end"
        "   from generate_series(1, 60) as n",
        mark,
    )
    first = await read(readers, f"/workers?find={mark}")
    hosts = told(first, rf"{mark}-\d\d")
    assert hosts == [f"{mark}-60", *(f"{mark}-{n:02}" for n in range(1, 50))]
    assert "7 of 10" in first
    assert "1 to 50 of 60" in first
    rest = await read(readers, following(first))
    assert told(rest, rf"{mark}-\d\d") == [f"{mark}-{n:02}" for n in range(50, 60)]
    silent = await read(readers, f"/workers?find={mark}&state=silent")
    assert told(silent, rf"{mark}-\d\d") == [f"{mark}-60"]
    assert "/drain" in silent
    assert "/drain" not in await read(readers, f"/workers?find={mark}", who="viewer")
    await readers.sql("delete from rota.workers where host like %s", f"{mark}%")


async def test_many_locks_come_page_by_page(readers: Visitors) -> None:
    mark = f"many {uuid4()}"
    await readers.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, acquired, expires)"
        " select %s || ' ' || lpad(n::text, 2, '0'), n %% 2, nextval('rota.tokens'), gen_random_uuid(),"
        "        'h', 1, rota.clock(), rota.clock() + interval '1 h' from generate_series(1, 60) as n",
        mark,
    )
    first = await read(readers, f"/coordination?lock={quote(mark)}")
    rest = await read(readers, following(first))
    names = [set(re.findall(rf"{mark} \d\d", page)) for page in (first, rest)]
    assert [len(each) for each in names] == [50, 10]
    assert not names[0] & names[1]


async def test_of_a_service_its_last_iterations_are_shown(readers: Visitors) -> None:
    name = f"monitor {uuid4()}"
    await readers.sql(
        "insert into rota.services (name, every, iteration, started) values (%s, 60, 30, rota.clock())",
        name,
    )
    await readers.sql(
        "insert into rota.iterations (service, number, term, instance, host, pid, ended, outcome, error)"
        " select %s, n, 7, gen_random_uuid(), 'h', 1, rota.clock(), case when n = 29 then 'failed'"
        "        else 'succeeded' end,"
        '        case when n = 29 then \'{"type": "ValueError", "message": "s3cret"}\'::json end'
        "   from generate_series(1, 30) as n",
        name,
    )
    listed = await read(readers, "/coordination")
    leads = f"/coordination?service={quote_plus(name)}"
    assert f'href="{leads}#iterations"' in listed
    page = await read(readers, leads)
    assert told(page, r'<tr data-key="(\d+)">') == [str(n) for n in range(30, 10, -1)]
    assert "ValueError: s3cret" in page
    hidden = await read(readers, leads, who="viewer")
    assert "ValueError" in hidden
    assert "s3cret" not in hidden
    await readers.sql("delete from rota.services where name = %s", name)


async def test_alerts_that_are_over_come_page_by_page(readers: Visitors) -> None:
    kind = f"kind {uuid4()}"
    await readers.sql(
        "insert into rota.alerts (kind, subject, message, host, pid, cleared)"
        " select %s, 's' || n, 'it was so', 'h', 1, rota.clock() from generate_series(1, 60) as n"
        "  order by n",
        kind,
    )
    first = await read(readers, "/alerts", who="viewer")
    assert told(first, r">s(\d+)<") == [str(n) for n in range(60, 10, -1)]
    rest = await read(readers, following(first), who="viewer")
    assert told(rest, r">s(\d+)<")[:10] == [str(n) for n in range(10, 0, -1)]
    assert "/api/v1/alerts" not in first
    await readers.sql("delete from rota.alerts where kind = %s", kind)


async def test_schedules_come_page_by_page(readers: Visitors) -> None:
    mark = f"many {uuid4()}"
    await readers.sql(
        "insert into rota.schedules (name, declared, kind, target, input, every, anchor)"
        " select %s || ' ' || lpad(n::text, 2, '0'), false, 'task', 'greet', '{}', 60, rota.clock()"
        "   from generate_series(1, 60) as n",
        mark,
    )
    first = await read(readers, f"/schedules?prefix={quote(mark)}")
    rest = await read(readers, following(first))
    pages = [told(unescape(page), rf"{mark} (\d\d)") for page in (first, rest)]
    assert [len(each) for each in pages] == [50, 10]
    assert pages[0] + pages[1] == sorted(pages[0] + pages[1])
    await readers.sql("delete from rota.schedules where name like %s", f"{mark}%")


@pytest.mark.parametrize("who", ["viewer", "operator"])
async def test_the_audit_log_is_for_administrators(readers: Visitors, who: str) -> None:
    answer = await readers.ask("GET", "/audit", who=who)
    assert answer.status_code == 403
    assert "this action needs the role admin" in answer.text
    assert (await readers.ask("GET", "/live?page=/audit", who=who)).status_code == 403


async def test_what_somebody_sent_is_text_and_nothing_else(readers: Visitors) -> None:
    evil = f'<script>alert(1)</script>\' onload="x" {uuid4()}'
    await readers.done(
        "POST",
        "/api/v1/schedules",
        json={"name": evil, "task": "approve", "every": 3600, "tenant": evil},
    )
    await readers.sql(
        "insert into rota.alerts (kind, subject, message, host, pid) values (%s, %s, %s, %s, 1)",
        *[evil] * 4,
    )
    await readers.sql(
        "insert into rota.locks (name, slot, token, instance, host, pid, label, acquired, expires)"
        " values (%s, 0, 1, gen_random_uuid(), %s, 1, %s, now(), now() + interval '1 h')",
        *[evil] * 3,
    )
    paths = ("/schedules", f"/schedules/{quote(evil, safe='')}", "/alerts", "/audit")
    for path in (*paths, f"/coordination?lock={quote(evil)}"):
        page = await read(readers, path)
        assert "&lt;script&gt;" in page, path
        assert "<script>alert" not in page, path
        assert 'onload="x"' not in page, path
    await readers.sql("delete from rota.alerts where kind = %s", evil)


@pytest.mark.parametrize("path", ["/workers?page=0", "/alerts?before=x", "/schedules?state=lost"])
async def test_what_cannot_be_asked_is_told_as_that(readers: Visitors, path: str) -> None:
    answer = await readers.ask("GET", path)
    assert answer.status_code == 422
    assert answer.headers["content-type"].startswith("text/html")


def test_a_deed_leads_to_what_it_was_done_to() -> None:
    assert page_of("cancel run", "7") == "/runs/7"
    assert page_of("cancel run", "7/../8") is None
    assert page_of("pause schedule", "a/b?") == "/schedules/a%2Fb%3F"
    assert page_of("create token", "x") is None
    assert details(b'{"until": "2026-11-16T18:15:13.790858+00:00", "pid": 7, "label": null}') == [
        *(("until", "2026-11-16 18:15:13 UTC"), ("pid", "7"))
    ]
