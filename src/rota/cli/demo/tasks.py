"""App of the demo, with sleeps in place of real work.

etl               flow: three sources, cleaned in parts, joined; a durable sleep; an approval;
                  three targets to publish to
filings-monitor   service that one instance runs, with the other workers as standbys
halts             task with a schedule
square, ping      jobs that do almost nothing
"""

from __future__ import annotations

import asyncio
import time

from rota import Context, Retry, Rota, ServiceContext, Settings

# Settings of the environment are ignored, so that the demo always shows the defaults.
app = Rota(settings=Settings(concurrency=40, prefetch=400, drain_timeout=2.0))

MONITOR = "filings-monitor"
MONITOR_SECONDS = 1.0
HALTS = "halts"
HALTS_SECONDS = 2.0

PARTS = 6
"""Parts in which a source is cleaned."""

SPEED_QUEUE = "speed"
"""Queue of the fast jobs."""

FAIL_ONE_IN = 100
"""Share of fast jobs that fail on their first attempt: one in this many."""

CREATE_TABLE = (
    "create table if not exists public.filings "
    "(number bigint primary key, iteration bigint not null, term bigint not null)"
)


class ServiceUnreachable(ConnectionError):
    """Error that the demo's tasks raise."""


# The flow

etl = app.flow("etl")


async def work(ctx: Context, seconds: float, total: int, note: str) -> None:
    """Sleep and report progress."""
    for done in range(total):
        ctx.progress(done, total, note)
        await asyncio.sleep(seconds / total)
    ctx.progress(total, total, note)


@etl.task
async def sources(day: str, time_scale: float) -> list[str]:
    await asyncio.sleep(0.8 * time_scale)
    return [f"{day}-{name}" for name in ("orders", "payments", "stock")]


@etl.task
async def extract_orders(ctx: Context, sources: list[str], time_scale: float) -> int:
    await work(ctx, 3.0 * time_scale, 30, sources[0])
    return 1200


@etl.task(retry=Retry(max_attempts=5, delay=0.4, backoff=1.5, jitter=0))
async def extract_payments(ctx: Context, sources: list[str], time_scale: float) -> int:
    await work(ctx, 1.2 * time_scale, 10, sources[1])
    if ctx.attempt < 3:
        raise ServiceUnreachable("the payments service does not answer")
    return 900


@etl.task
async def extract_stock(ctx: Context, sources: list[str], time_scale: float) -> int:
    await work(ctx, 4.0 * time_scale, 40, sources[2])
    return 600


@app.task
async def clean_part(rows: int, part: int, time_scale: float) -> int:
    await asyncio.sleep((1.5 + part % 3) * time_scale)
    return rows


async def clean_in_parts(ctx: Context, rows: int, time_scale: float) -> int:
    """Start one job for each part; the number of parts is known at run time only."""
    calls = [clean_part.bind(rows // PARTS, part, time_scale) for part in range(PARTS)]
    return sum(await ctx.map(calls))


@etl.task
async def clean_orders(ctx: Context, extract_orders: int, time_scale: float) -> int:
    return await clean_in_parts(ctx, extract_orders, time_scale)


@etl.task
async def clean_payments(ctx: Context, extract_payments: int, time_scale: float) -> int:
    return await clean_in_parts(ctx, extract_payments, time_scale)


@etl.task
async def clean_stock(ctx: Context, extract_stock: int, time_scale: float) -> int:
    return await clean_in_parts(ctx, extract_stock, time_scale)


@etl.task
async def join(
    ctx: Context, clean_orders: int, clean_payments: int, clean_stock: int, time_scale: float
) -> int:
    await work(ctx, 1.5 * time_scale, 10, "join")
    return clean_orders + clean_payments + clean_stock


@etl.task
async def check(ctx: Context, join: int, time_scale: float) -> bool:
    await work(ctx, 2.0 * time_scale, 10, "check")
    return join > 0


@etl.task
async def settle(ctx: Context, join: int, time_scale: float) -> int:
    await ctx.sleep(3.0 * time_scale)  # occupies no worker slot and survives a restart
    return join


approval = etl.wait_signal("approval", type=bool, after=[check, settle])


@etl.task
async def publish_web(ctx: Context, approval: bool, time_scale: float) -> str:
    await work(ctx, 2.0 * time_scale, 10, "web")
    return "web"


@etl.task
async def publish_mail(ctx: Context, approval: bool, time_scale: float) -> str:
    await work(ctx, 1.5 * time_scale, 10, "mail")
    return "mail"


@etl.task
async def publish_archive(ctx: Context, approval: bool, time_scale: float) -> str:
    await work(ctx, 2.5 * time_scale, 10, "archive")
    return "archive"


@etl.task
async def report(
    publish_web: str, publish_mail: str, publish_archive: str, time_scale: float
) -> list[str]:
    await asyncio.sleep(0.5 * time_scale)
    return [publish_web, publish_mail, publish_archive]


FLOW_SECONDS = 22.0
"""Approximate duration of a run at time scale 1, including the approval."""


# Service and schedule


@app.service(MONITOR, every=MONITOR_SECONDS)
async def monitor(ctx: ServiceContext) -> None:
    await asyncio.sleep(0.05)
    last = int(time.time())
    rows = [
        {"number": number, "iteration": ctx.iteration, "term": ctx.term}
        for number in (last - 2, last - 1, last)
    ]
    async with ctx.transaction() as connection:
        await app.insert_once(connection, "filings", rows, conflict=["number"])


@app.schedule(every=HALTS_SECONDS, overlap="allow", name=HALTS)
@app.task
async def halts(ctx: Context) -> str:
    return "none" if ctx.scheduled_for is None else ctx.scheduled_for.isoformat()


# Fast jobs


@app.task(queue=SPEED_QUEUE, retry=Retry(max_attempts=3, delay=0.2, backoff=1.5))
async def square(ctx: Context, number: int) -> int:
    if number % FAIL_ONE_IN == 0 and ctx.attempt == 1:
        raise ServiceUnreachable("the remote service is down")
    return number * number


@app.task(queue="ping")
async def ping(number: int) -> int:
    return number
