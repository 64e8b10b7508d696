"""Runs that ended some time ago, inserted directly, and their removal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rota.model.retention import Retention
from rota.store import retention
from rota.store.retention import PrunableRow, PrunableRuns
from support.stage import Connection, Stage

TABLES = (
    *("jobs", "runs", "outcomes", "attempts", "keys", "waiters", "cancels"),
    *("checkpoints", "steps", "signals", "progress", "logs"),
)

# Rows that the code of a job would have written.
LIVED = (
    "insert into rota.checkpoints (job, state) select each, '1' from unnest(%s::bigint[]) as each",
    "insert into rota.steps (job, kind, name, number, position, main_branch)"
    " select each, 'step', number::text, 1, number, true"
    " from unnest(%s::bigint[]) as each, generate_series(1, 2) as number",
    "insert into rota.signals (run, name, at, payload)"
    " select each, 'go', rota.clock(), '1' from unnest(%s::bigint[]) as each",
    "insert into rota.signals (run, name) select each, 'never' from unnest(%s::bigint[]) as each",
    "insert into rota.progress (job, claim, done) select each, 1, 0.5 from unnest(%s::bigint[]) as each",
    "insert into rota.logs (job, at, attempt, message)"
    " select each, rota.clock(), 1, 'so' from unnest(%s::bigint[]) as each, generate_series(1, 3)",
)


class OldRuns:
    """Runs that ended `days` ago. They were created a minute before, unless `created` is given."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def ended(
        self,
        days: float,
        state: str = "succeeded",
        queue: str = "default",
        *,
        created: float | None = None,
        key: str | None = None,
        run: int | None = None,
    ) -> int:
        """Insert a finished job, as its own run unless `run` is given."""
        job: int = await self.stage.one(
            "insert into rota.jobs (run, created, task, queue, args, key, rule, successors)"
            " values (%s, rota.clock() - %s, 'work', %s, '{}', %s, %s, %s) returning id",
            *(run, self._before(created, days), queue, key),
            *((None, None) if run is None else ("all_succeeded", [run])),
        )
        await self.outcome(job, days, state)
        if key is not None:
            await self.take_key("work", key, job)
        return job

    async def flow(
        self,
        days: float,
        state: str = "succeeded",
        queues: Sequence[str] = ("default", "default"),
        *,
        parent: int | None = None,
        part_of: int | None = None,
        key: str | None = None,
        open: bool = False,
    ) -> tuple[int, list[int]]:
        """Insert a flow's run with a succeeded job for each queue; with `open`, the last job is queued."""
        run: int = await self.stage.one("select nextval('rota.ids')")
        jobs = [await self.ended(days, queue=queue, run=run) for queue in queues]
        await self.stage.sql(
            "insert into rota.runs (id, created, flow, key, parent, input, jobs, successors)"
            " values (%s, rota.clock() - %s, 'etl', %s, %s, '{}', %s, %s)",
            *(run, self._before(None, days), key, parent, jobs, part_of and [part_of]),
        )
        if key is not None:
            await self.take_key("etl", key, run)
        if open:
            await self.stage.sql("delete from rota.outcomes where job = %s", jobs[-1])
            await self.stage.sql(
                "insert into rota.queued (seq, job, priority, queue, task)"
                " select id, id, priority, queue, task from rota.jobs where id = %s",
                jobs[-1],
            )
            await self.stage.sql("insert into rota.waiting (job, open) values (%s, 1)", run)
        else:
            await self.outcome(run, days, state)
        return run, jobs

    async def outcome(self, job: int, days: float, state: str = "succeeded") -> None:
        await self.stage.sql(
            "insert into rota.outcomes (job, at, state, attempt)"
            " values (%s, rota.clock() - %s, %s, 1)",
            *(job, timedelta(days=days), state),
        )

    async def take_key(self, task: str, key: str, run: int) -> None:
        await self.stage.sql(
            "insert into rota.keys (task, key, run) values (%s, %s, %s)", task, key, run
        )

    async def lived(self, *ids: int) -> None:
        """Insert checkpoints, steps, signals, progress and logs of these jobs."""
        for statement in LIVED:
            await self.stage.sql(statement, list(ids))

    # Removal

    @staticmethod
    def rules(keep: str) -> Retention:
        return Retention.parse(keep)

    async def find(
        self, keep: str = "7d", after: int = 0, most: int = 100, on: Connection | None = None
    ) -> PrunableRuns:
        [found] = await self.stage.run(retention.find(self.rules(keep), after, most), on)
        return found

    async def remove(self, found: PrunableRuns, on: Connection | None = None) -> list[PrunableRow]:
        return await self.stage.run(retention.remove(found), on)

    async def prune(
        self, keep: str = "7d", after: int = 0, most: int = 100, on: Connection | None = None
    ) -> PrunableRuns:
        """Prune one batch as the engine does; return the found runs."""
        connection = on or self.stage.engine
        async with connection.transaction():
            [ours] = await self.stage.run(retention.try_lock(self.stage.schema), connection)
            assert ours
            found = await self.find(keep, after, most, connection)
            await self.remove(found, connection)
        return found

    # Remaining rows

    async def jobs(self) -> list[int]:
        return await self.stage.sql("select id from rota.jobs order by id")

    async def mentions(self, *ids: int) -> dict[str, int]:
        """Return the number of rows about these ids in each table that has some."""
        columns = {"jobs": "id", "runs": "id", "keys": "run", "signals": "run"}
        found: dict[str, Any] = {}
        for table in TABLES:
            column = columns.get(table, "job")
            found[table] = await self.stage.one(
                f"select count(*) from rota.{table} where {column} = any(%s)", list(ids)
            )
        return {table: rows for table, rows in found.items() if rows}

    @staticmethod
    def _before(created: float | None, days: float) -> timedelta:
        return timedelta(days=days, minutes=1) if created is None else timedelta(days=created)
