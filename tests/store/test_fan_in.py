"""The fan-in race, with commits delayed: predecessors that end together always release their successor."""

from __future__ import annotations

import asyncio

import pytest

from rota.store import flows as store
from support import flows
from support.flows import end
from support.stage import Batch, Connection, Stage

WIDTH = 8

SLOW_COMMIT = [
    """
    create function public.linger() returns trigger language plpgsql as
    $$ begin perform pg_sleep(0.002); return null; end $$
    """,
    """
    create constraint trigger linger after insert on rota.outcomes
        deferrable initially deferred for each row execute function public.linger()
    """,
]

NO_LOCK = (
    "for update offset 0",
    "offset 0",
)
"""The counter without the row lock: two last predecessors may both read an old value."""

ASKS_THE_PARENTS = """
create or replace function rota.release_successors(
    ended bigint[], kinds rota.outcome[] default null, with_runs boolean default false,
    due bigint[] default null, out queues text[], out runs bigint[], out has_pending boolean)
language plpgsql as $$
begin
    queues := '{}'; runs := '{}'; has_pending := false;
    with through as (
        delete from rota.waiting
         where waiting.job in (select unnest(successors) from rota.jobs where id =
                any(release_successors.ended))
           and not exists (
               select from rota.jobs as parent
                where waiting.job = any(parent.successors)
                  and parent.id <> all(release_successors.ended)
                  and not exists (select from rota.outcomes where outcomes.job = parent.id))
        returning waiting.*),
    put as (
        insert into rota.queued (seq, job, priority, attempt, queue, task)
        select nextval('rota.ids'), job, priority, attempt, queue, task from through where rule is not null)
    insert into rota.outcomes (job, state, attempt)
    select job, 'succeeded', 1 from through where rule is null;
end $$
"""
"""No counter: checks if all predecessors are done, as far as this transaction's snapshot shows."""


async def mutate(stage: Stage, mutant: str) -> None:
    """Replace `release_successors` by a version that is wrong on purpose."""
    match mutant:
        case "without the lock":
            text = await stage.one("select pg_get_functiondef('rota.release_successors'::regproc)")
            assert NO_LOCK[0] in text, "release_successors has changed: the mutant must be updated"
            await stage.sql(text.replace(*NO_LOCK))
        case "asks the parents":
            await stage.sql(ASKS_THE_PARENTS)


async def race(stage: Stage, many: int) -> list[Batch]:
    """End the eight predecessors of each run in eight sessions at once; return the claims of the
    successors."""
    parents = [f"p{number}" for number in range(WIDTH)]
    graph = {**dict.fromkeys(parents, ()), "child": parents}
    await stage.run(store.start([flows.run_of(graph) for _ in range(many)], notify=False))
    worker = await stage.worker()
    held = [await flows.claim(stage, worker, many, names=[name]) for name in parents]
    together = asyncio.Barrier(WIDTH)

    async def session(batch: Batch, on: Connection) -> list[Batch]:
        found = []
        # Two runs at a time, so that sessions meet at both rows.
        for at in range(0, many, 2):
            await together.wait()
            await end(stage, batch, given=batch.jobs[at : at + 2], on=on)
            found.append(await flows.claim(stage, worker, 10, on=on, names=["child"]))
        return found

    sessions = [await stage.connect(engine=True) for _ in parents]
    claimed = await asyncio.gather(*map(session, held, sessions))
    late = await flows.claim(stage, worker, many, names=["child"])
    return [each for some in claimed for each in some if each.jobs] + [late]


async def test_fan_in_concurrent_ends_release_each_successor_once(
    own_stage: Stage,
) -> None:
    stage, many = own_stage, 240
    for statement in SLOW_COMMIT:
        await stage.sql(statement)

    batches = await race(stage, many)

    children = [job for batch in batches for job in batch.jobs]
    assert (len(children), len(set(children))) == (many, many)
    assert await stage.one("select count(*) from rota.waiting where rule is not null") == 0
    await stage.sql("drop trigger linger on rota.outcomes")
    for batch in batches:
        await end(stage, batch)
    assert await stage.sql(
        "select outcomes.state::text, count(*) from rota.runs join rota.outcomes on job = id group by 1"
    ) == [("succeeded", many)]


@pytest.mark.parametrize("mutant", ["without the lock", "asks the parents"])
async def test_fan_in_race_detects_wrong_release_successors(rota_dsn: str, mutant: str) -> None:
    """Shows that the test above detects the race."""
    stage, many = Stage(rota_dsn), 30
    await stage.open()
    try:
        for statement in SLOW_COMMIT:
            await stage.sql(statement)
        await mutate(stage, mutant)

        children = [job for batch in await race(stage, many) for job in batch.jobs]

        assert len(children) != many or len(set(children)) != many
    finally:
        await stage.close()
