"""Listings of the fleet are complete and ordered, and are found without scanning whole tables."""

from __future__ import annotations

from itertools import product

import pytest

from rota.store import audit, ticks
from rota.store.read import coordination, runs
from support.connection_plans import explain, read_by
from support.scale import scale
from support.stage import Stage

MANY = scale(20_000, 1_000_000)

DEEDS = """
insert into rota.audit (operator, action, subject)
select 'ada', 'cancel run', n::text from generate_series(1, %(rows)s) as n
"""

# A few entries of other operators and actions among them.
FEW = """
insert into rota.audit (operator, action, subject)
select operator, action, subject
  from unnest(array['ada', 'bob', repeat('long ', 1000), repeat('long ', 1000) || 'er']) as operator,
       unnest(array['cancel run', 'drain worker']) as action,
       unnest(array['7', 'a lock', repeat('lang ', 1000), repeat('lang ', 1000) || 'er']) as subject
"""

THROUGH_ALL = """
select id, operator, action, subject
  from rota.audit
 where (%(operator)s::text is null or operator = %(operator)s)
   and (%(action)s::text is null or action = %(action)s)
   and (%(subject)s::text is null or subject = %(subject)s)
   and id < %(before)s
 order by id desc
 limit %(limit)s
"""

QUESTIONS = list(
    product(
        (None, "ada", "bob", "long " * 1000, "nobody"),
        (None, "cancel run", "drain worker"),
        (None, "7", "lang " * 1000),
    )
)


async def fill_audit(stage: Stage, rows: int) -> None:
    await stage.sql("set statement_timeout = 0")
    await stage.sql("delete from rota.audit")
    await stage.watch.execute(FEW.encode())
    await stage.watch.execute(DEEDS.encode(), {"rows": rows})
    await stage.watch.execute(FEW.encode())


async def test_audit_entries_filter_by_operator_action_and_subject(stage: Stage) -> None:
    await fill_audit(stage, 30)
    middle = await stage.one("select min(id) + 20 from rota.audit")
    for who, action, subject in QUESTIONS:
        for before in (audit.MAX_ID, middle):
            asked = audit.entries(5, before, operator=who, action=action, subject=subject)
            found = [
                (each.id, each.operator, each.action, each.subject)
                for each in await stage.run(asked)
            ]
            cursor = await stage.watch.execute(THROUGH_ALL.encode(), asked.params)
            assert found == await cursor.fetchall()


@pytest.mark.parametrize("analysed", [False, True])
async def test_audit_entries_with_filter_read_few_rows(own_stage: Stage, analysed: bool) -> None:
    await fill_audit(own_stage, MANY)
    if analysed:
        await own_stage.sql("analyze rota.audit")
    for who, action, subject in QUESTIONS:
        if (who, action) == ("ada", "drain worker") and subject is None:
            continue  # reads all of ada's entries: no index has both columns
        asked = audit.entries(51, operator=who, action=action, subject=subject)
        async with own_stage.watch.transaction(force_rollback=True):
            await own_stage.run(ticks.set_short_timeouts(), own_stage.watch)
            found = await explain(own_stage.watch, own_stage.schema, asked)
        assert read_by(found)["audit"] < 800, (who, action, subject, found)


async def test_ended_workers_are_listed_newest_first(stage: Stage) -> None:
    there, left, died = [await stage.worker() for _ in range(3)]
    later = (
        "update rota.workers set state = %s::rota.worker_state,"
        " ended = rota.clock() + %s * interval '1 s' where id = %s"
    )
    await stage.sql(later, "stopped", 2, left)
    await stage.sql(later, "dead", 1, died)
    assert [each.worker for each in await stage.run(runs.ended_workers())] == [left, died]
    assert [each.worker for each in await stage.run(runs.ended_workers(1))] == [left]
    assert there in [each.worker for each in await stage.run(runs.workers())]


async def test_closed_alerts_are_paged_without_open_alerts(
    stage: Stage,
) -> None:
    await stage.sql("delete from rota.alerts")
    await stage.sql(
        "insert into rota.alerts (kind, subject, message, host, pid, cleared)"
        " select 'k', n::text, 'm', 'h', 1, case when n <> 3 then rota.clock() end"
        "   from generate_series(1, 5) as n order by n"
    )
    first = await stage.run(coordination.closed_alerts(limit=3))
    assert [each.subject for each in first] == ["5", "4", "2"]
    rest = await stage.run(coordination.closed_alerts(first[-1].id, 3))
    assert [each.subject for each in rest] == ["1"]


async def test_once_calls_are_listed_by_key_prefix(stage: Stage) -> None:
    await stage.sql("delete from rota.once_calls")
    await stage.sql(
        "insert into rota.once_calls (key, token, instance, nonce, host, pid, label, started, expires,"
        "                        finished, retained_until, result)"
        " select key, 1, gen_random_uuid(), gen_random_uuid(), 'h', 1, 'l', rota.clock(),"
        "        rota.clock() + case when key = 'b:lost' then -1 else 60 end * interval '1 s',"
        "        case when key like '%%done%%' then rota.clock() end,"
        "        case when key = 'b:done' then 'infinity' else rota.clock() end, '42'"
        "   from unnest(array['a', 'b', 'b:done', 'b:lost', 'b:on', 'b\U0001f600 done', 'c']) as key"
    )
    lines = await stage.run(coordination.once_calls("b"))
    states = {each.key: (each.state, each.retained_until is None) for each in lines}
    assert states == {
        "b": ("running", False),
        "b:done": ("finished", True),
        "b:lost": ("lost", False),
        "b:on": ("running", False),
        "b\U0001f600 done": ("finished", False),
    }
    assert [each.key for each in await stage.run(coordination.once_calls("b", "b:done", 2))] == [
        "b:lost",
        "b:on",
    ]
    assert len(await stage.run(coordination.once_calls())) == 7


async def test_rate_limits_list_has_the_used_amount(stage: Stage) -> None:
    await stage.sql("delete from rota.rate_limits")
    await stage.sql(
        "insert into rota.rate_limits (name, refilled_at, interval_seconds, last_used)"
        " values ('busy', rota.clock() + interval '20 s', 2, rota.clock()),"
        "        ('idle', rota.clock() - interval '20 s', 2, rota.clock())"
    )
    busy, idle = await stage.run(coordination.rate_limits())
    assert (busy.name, idle.name) == ("busy", "idle")
    assert 8 < busy.used <= 10
    assert idle.used == 0
    assert await stage.run(coordination.rate_limits("busy")) == [idle]


@pytest.mark.parametrize("analysed", [False, True])
async def test_locks_list_finds_few_held_among_many_free(own_stage: Stage, analysed: bool) -> None:
    await own_stage.sql("set statement_timeout = 0")
    await own_stage.sql(
        "insert into rota.locks (name, slot, token, acquired, expires, instance)"
        " select 'lock ' || n, n %% 2, n, rota.clock(), rota.clock() + interval '1 h',"
        "        case when n %% 1000 = 0 then gen_random_uuid() end from generate_series(1, %s) as n",
        MANY,
    )
    if analysed:
        await own_stage.sql("analyze rota.locks")
    found = await own_stage.run(coordination.locks())
    held = await own_stage.sql(
        "select name from rota.locks where instance is not null order by name, slot limit 200"
    )
    assert [each.name for each in found] == held
    after = (found[9].name, found[9].permit)
    page = await own_stage.run(coordination.locks(after=after, limit=5))
    assert [each.name for each in page] == held[10:15]
    scans = await explain(own_stage.watch, own_stage.schema, coordination.locks())
    assert read_by(scans)["locks"] <= 2 * len(held), scans
    free = await own_stage.run(coordination.locks("lock 7", include_free=True))
    assert [(each.name, each.held) for each in free] == [("lock 7", False)]
