"""What a beat costs the table of workers: no more than the row itself."""

from __future__ import annotations

from rota.store import workers

from .stage import Stage


async def test_a_beat_is_an_update_in_place(own_stage: Stage) -> None:
    """Nothing that changes is indexed, and there is room on the page: no index grows with it."""
    stage = own_stage
    many = [f"task{number}" for number in range(100)]
    found: list[tuple[int, int]] = []
    for _ in range(5):
        [worker] = await stage.run(workers.register("h", 1, "0", ["default"] * 20, many, 1))
        before = await _updates(stage)
        for number in range(300):
            await stage.run(workers.beat(worker, number, number, 0.5))
        await stage.run(workers.mark_draining(worker))
        after = await _updates(stage)
        found.append((after[0] - before[0], after[1] - before[1]))
        # Whoever holds a snapshot meanwhile, such as autovacuum, keeps room from being made, and costs one.
        if found[-1] == (301, 301):
            size = await stage.one("select pg_relation_size('rota.workers')")
            assert size <= 2 * 8192 * len(found)
            return
    raise AssertionError(f"updates, and those in place: {found}")


async def _updates(stage: Stage) -> tuple[int, int]:
    await stage.sql("select pg_stat_force_next_flush()", on=stage.engine)
    [(updated, hot)] = await stage.sql(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'workers'"
    )
    return updated, hot
