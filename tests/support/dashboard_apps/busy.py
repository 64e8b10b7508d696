"""App of the large database: its tasks and flows by name. No worker runs it."""

from __future__ import annotations

from rota import Rota

app = Rota()

QUEUES = {
    "orders": "default",
    **{name: name for name in ("mail", "media", "prices", "search", "ledger", "reports", "crawl")},
}

for area, queue in QUEUES.items():
    for verb in ("collect", "check", "write", "send", "tidy_up"):

        @app.task(name=f"{area}.{verb}", queue=queue)
        async def work(order: int, customer: str = "") -> None: ...


etl = app.flow("etl")


@etl.task(queue="reports")
async def extract(day: int) -> int:
    return day


@etl.task(queue="reports")
async def orders(extract: int) -> int:
    return extract


@etl.task(queue="reports")
async def customers(extract: int) -> int:
    return extract


@etl.task(queue="reports")
async def prices(extract: int) -> int:
    return extract


@etl.task(queue="reports")
async def load(orders: int, customers: int, prices: int) -> None: ...


wide = app.flow("wide")


@wide.task(queue="crawl")
async def merge(pages: int) -> None: ...
