"""Cost of a heartbeat in the table of workers: one row update."""

from __future__ import annotations

from rota.store import workers
from support.stage import Stage


async def test_worker_beat_updates_the_row_in_place(own_stage: Stage) -> None:
    """No changing column is indexed, and the page has room, so no index grows."""
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
        # Another snapshot, such as autovacuum's, keeps old row versions alive and costs one HOT update.
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
