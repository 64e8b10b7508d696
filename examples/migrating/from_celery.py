"""Code of the guide to migrating from Celery. Tests run it."""

# [app]
from datetime import timedelta

from rota import Context, Retry, RetryLater, Rota

app = Rota()  # uses ROTA_DATABASE_URL; there is no broker and no result backend
# [/app]


class Overloaded(Exception):
    """The mail server refuses mail for a while."""


sent: list[tuple[int, str]] = []
overloaded_until: dict[int, int] = {}


# [task]
@app.task(
    queue="mail",
    retry=Retry(max_attempts=6, delay=10, max_delay=600, non_retryable=(ValueError,)),
    timeout=30,
)
def send_invoice(ctx: Context, order: int) -> str:  # a plain function runs in a thread
    try:
        return deliver(order, message_id=f"invoice-{ctx.job_id}")  # the same id in every attempt
    except Overloaded:
        raise RetryLater(60) from None


# [/task]
def deliver(order: int, message_id: str) -> str:
    if order < 0:
        raise ValueError(f"there is no order {order}")
    if overloaded_until.get(order, 0) > 0:
        overloaded_until[order] -= 1
        raise Overloaded
    sent.append((order, message_id))
    return f"sent {order}"


# [starting]
async def place(order: int) -> None:
    run = await send_invoice.start(order)
    await send_invoice.options(delay=timedelta(minutes=5), expires=3600, priority=5).start(order)
    await send_invoice.options(key=f"invoice-{order}").start(order)  # repeated: the same run
    print(await run.result(timeout=10))


def place_from_code_that_does_not_await(order: int) -> str:
    return send_invoice.sync.start(order).result(timeout=10)


# [/starting]


# [canvas]
@app.task
async def resize(path: str) -> int:
    return len(path)


@app.task
async def gallery(
    ctx: Context, paths: list[str]
) -> int:  # a chord: many jobs, then one with all results
    sizes = await ctx.map([resize.bind(path) for path in paths], concurrency=20)
    return sum(sizes)


report = app.flow("report")  # chains, groups and chords: results are passed by name


@report.task
async def fetch(day: str) -> list[str]:
    return [f"{day}-a", f"{day}-b"]


@report.task
async def totals(fetch: list[str]) -> int:
    return len(fetch)


@report.task
async def charts(fetch: list[str]) -> list[str]:
    return [f"chart of {each}" for each in fetch]


@report.task
async def publish(totals: int, charts: list[str]) -> str:
    return f"{totals} rows, {len(charts)} charts"


# [/canvas]


# [beat]
@app.schedule("30 7 * * mon-fri", tz="Europe/Paris")
@app.task
async def morning_report(ctx: Context) -> str:
    run = await report.start(day=f"{ctx.scheduled_for:%Y-%m-%d}")
    return str(run.id)


# [/beat]
