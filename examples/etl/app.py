"""Flow that stages each sale once, and publishes it once or not at all, even if workers are killed.

extract ── clean ── settle ── check ── approval ─┬─ publish
             ╰ clean_file × 12                   ╰─ discard         alarm, if anything failed
"""

from __future__ import annotations

import os
from datetime import timedelta

from rota import Context, Retry, Rota

from .source import PACE, files_of, read

app = Rota(os.environ.get("ROTA_DATABASE_URL", "local"))  # default: the embedded PostgreSQL
etl = app.flow("etl")
SETTLE = float(os.environ.get("ETL_SETTLE", "10"))

TABLES = """
    create table if not exists staged (day text, file text, product text, cents int);
    create table if not exists sales (day text, product text, cents bigint);
"""  # No primary key: a repeated insert would create a second row.


@etl.task
async def extract(ctx: Context, day: str) -> list[str]:
    async with ctx.transaction() as connection:
        await connection.execute(TABLES)  # a real application has migrations
    return await files_of(day)


@etl.task
async def clean(ctx: Context, day: str, extract: list[str]) -> int:
    """Start one job for each file, four at a time. The waiting job occupies no slot of its worker."""
    counts = await ctx.map([clean_file.bind(day, file) for file in extract], concurrency=4)
    return sum(counts)


@app.task(retry=Retry(max_attempts=5, delay=2 * PACE))
async def clean_file(ctx: Context, day: str, file: str) -> int:
    rows = await read(file, ctx.attempt)  # sometimes fails; retried after two seconds
    # The rows and the job's completion are one commit. A worker that has lost the job commits nothing.
    async with ctx.transaction() as connection:
        async with connection.cursor() as cursor:
            await cursor.executemany(
                "insert into staged (day, file, product, cents) values (%s, %s, %s, %s)",
                [(day, file, product, cents) for product, cents in rows],
            )
        ctx.complete(len(rows))
    return len(rows)


# Waiting for late corrections occupies no worker, no memory and no connection.
settle = etl.sleep("settle", timedelta(seconds=SETTLE), after=[clean])


@etl.task(after=[settle])
async def check(ctx: Context, day: str, clean: int) -> int:
    """Check that the staged rows match the files. Return the total, for the approval."""
    async with ctx.transaction() as connection:
        found = await connection.execute(
            "select count(*), coalesce(sum(cents), 0) from staged where day = %s", (day,)
        )
        [rows, cents] = await found.fetchone() or (0, 0)
    if rows != clean:
        raise ValueError(f"{clean} sales were read, but {rows} are staged")
    return int(cents)


# A person decides: `rota signal RUN approval true`, the API, or the dashboard. No answer means no.
etl.wait_signal("approval", type=bool, timeout=timedelta(days=2), default=False, after=[check])


@etl.task(skip_if=lambda approval: not approval)
async def publish(ctx: Context, day: str, approval: bool, check: int) -> int:
    async with ctx.transaction() as connection:
        await connection.execute(
            "insert into sales (day, product, cents) "
            "select day, product, sum(cents) from staged where day = %s group by day, product",
            (day,),
        )
        await connection.execute("delete from staged where day = %s", (day,))
        ctx.complete(check)
    return check


@etl.task(skip_if=lambda approval: approval)
async def discard(ctx: Context, day: str, approval: bool) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("delete from staged where day = %s", (day,))
        ctx.complete()


@etl.on_failure
async def alarm(ctx: Context, day: str) -> None:
    for failure in await ctx.failures():
        print(f"{day}: {failure.task} failed: {failure.reason}", flush=True)
