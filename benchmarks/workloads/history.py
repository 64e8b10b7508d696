"""History: draining 200,000 jobs beside five million finished ones, against an empty database.

The history is created by SQL once, in a database that is copied for each pair, so that all pairs start from
the same state.
"""

from __future__ import annotations

from benchmarks.findings import Bar, Findings, ratios
from benchmarks.stage import Ground, Stage

BAR = Bar("drain with a history / without", 0.8, 0.95, more=True)
TEMPLATE = "bench_history"

MAKE = (
    """
    insert into rota.jobs (id, created, task, queue, args)
    select nextval('rota.ids'), rota.clock() - interval '1 day', 'noop', 'default',
           json_build_object('n', number, 'url', 'https://example.com/a/b')
      from generate_series(1, {count}) as number""",
    """
    insert into rota.outcomes (job, claim, worker, at, seconds, state, attempt, result)
    select id, 0, 0, created, 0.001, 'succeeded', 1, 'null' from rota.jobs""",
)


def run(stage: Stage) -> Findings:
    sizes = stage.sizes
    findings = Findings(f"History of {sizes.history:,} finished jobs")
    make_history(stage, sizes.history)
    alone, beside = [], []
    try:
        for turn in range(sizes.pairs):
            alone.append(_rate(stage, None))
            beside.append(_rate(stage, TEMPLATE))
            stage.say(f"history {turn + 1}: {beside[-1]:,.0f}/s, alone {alone[-1]:,.0f}/s")
    finally:
        stage.cluster.drop(TEMPLATE)

    findings.add(f"{sizes.slice:,} in an empty database", stage.rota.name, "jobs/s", alone)
    findings.add(f"{sizes.slice:,} beside a history", stage.rota.name, "jobs/s", beside)
    findings.judge(BAR, ratios(beside, alone))
    return findings


def make_history(stage: Stage, count: int) -> None:
    dsn = stage.cluster.create(TEMPLATE)
    with stage.rota.child(dsn) as child:
        child.ask("migrate", 60)
    with stage.cluster.connection(TEMPLATE) as connection:
        for statement in MAKE:
            connection.execute(statement.format(count=count))
    stage.cluster.settle(TEMPLATE)
    stage.say(f"history: {count:,} finished jobs inserted")


def _rate(stage: Stage, template: str | None) -> float:
    if template:
        database = f"bench_{stage.rota.name}"
        ground = Ground(stage, stage.rota, database, stage.cluster.create(database, template))
    else:
        ground = stage.fresh(stage.rota)
    with ground.workers(1) as workers:
        workers.warm_up()
        numbers = ground.fill(stage.sizes.slice)
        ground.settle()
        seconds = workers.drain(numbers)
    ground.drop()
    return stage.sizes.slice / seconds
