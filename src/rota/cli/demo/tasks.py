"""App of the demo, with sleeps in place of real work.

etl               flow: two sources; a durable function that cleans them in parts; a durable sleep; an
                  approval; two targets to publish to
filings-monitor   service that one instance runs, with the other workers as standbys
halts             task with a schedule
square, ping      jobs that do almost nothing
"""

from __future__ import annotations

import asyncio

from rota import Context, Retry, Rota, ServiceContext, Settings

# Settings of the environment are ignored, so that the demo always shows the defaults.
app = Rota(settings=Settings(concurrency=40, prefetch=400, drain_timeout=2.0))

MONITOR = "filings-monitor"
MONITOR_SECONDS = 1.0
HALTS = "halts"
HALTS_SECONDS = 2.0

PARTS = 6
"""Parts in which the sources are cleaned."""

FAIL_ONE_IN = 100
"""Share of fast jobs that fail on their first attempt: one in this many."""

FLOW_SECONDS = 17.0
"""Approximate duration of a run at time scale 1, including the approval."""


class ServiceUnreachable(ConnectionError):
    """Error that the demo's tasks raise."""


# The flow

etl = app.flow("etl")


async def work(ctx: Context, seconds: float, note: str) -> None:
    """Sleep and report progress."""
    for percent in range(0, 100, 5):
        ctx.progress(percent, 100, note)
        await asyncio.sleep(seconds / 20)
    ctx.progress(100, 100, note)


@etl.task
async def extract_orders(ctx: Context, day: str, time_scale: float) -> int:
    await work(ctx, 3.0 * time_scale, f"{day}-orders")
    return 1200


@etl.task(retry=Retry(max_attempts=5, delay=0.4, backoff=1.5, jitter=0))
async def extract_payments(ctx: Context, day: str, time_scale: float) -> int:
    await work(ctx, 1.2 * time_scale, f"{day}-payments")
    if ctx.attempt < 3:
        raise ServiceUnreachable("the payments service does not answer")
    return 900


@app.task
async def clean_part(rows: int, part: int, time_scale: float) -> int:
    await asyncio.sleep((1.5 + part % 3) * time_scale)
    return rows


@etl.task
async def clean(ctx: Context, extract_orders: int, extract_payments: int, time_scale: float) -> int:
    """Start one job for each part; the number of parts is known at run time only."""
    rows = (extract_orders + extract_payments) // PARTS
    calls = [clean_part.bind(rows, part, time_scale) for part in range(PARTS)]
    return sum(await ctx.map(calls))


@etl.task
async def settle(ctx: Context, clean: int, time_scale: float) -> int:
    await ctx.sleep(3.0 * time_scale)  # occupies no worker slot and survives a restart
    return clean


approval = etl.wait_signal("approval", type=bool, after=[settle])


@etl.task
async def publish_web(ctx: Context, approval: bool, time_scale: float) -> str:
    await work(ctx, 2.5 * time_scale, "web")
    return "web"


@etl.task
async def publish_mail(ctx: Context, approval: bool, time_scale: float) -> str:
    await work(ctx, 1.5 * time_scale, "mail")
    return "mail"


@etl.task
async def report(publish_web: str, publish_mail: str) -> list[str]:
    return [publish_web, publish_mail]


# Service and schedule


@app.service(MONITOR, every=MONITOR_SECONDS)
async def monitor(ctx: ServiceContext) -> None:
    await asyncio.sleep(0.05)


@app.schedule(every=HALTS_SECONDS, overlap="allow", name=HALTS)
@app.task
async def halts(ctx: Context) -> str:
    return "none" if ctx.scheduled_for is None else ctx.scheduled_for.isoformat()


# Fast jobs


@app.task(queue="speed", retry=Retry(max_attempts=3, delay=0.2, backoff=1.5))
async def square(ctx: Context, number: int) -> int:
    if number % FAIL_ONE_IN == 0 and ctx.attempt == 1:
        raise ServiceUnreachable("the remote service is down")
    return number * number


@app.task(queue="ping")
async def ping(number: int) -> int:
    return number
