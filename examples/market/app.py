"""Monitors of the feed, research on new items, and alerts.

filings   a service, every minute         ─┬─▶ research, a job each, ─▶ findings
articles  a flow, every half a minute,    ─╯   buys a report once          │
          over three sources                                              ▼
halts     a service, every ten seconds    ──────────────────────────────▶ page, a job each
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota import Context, Retry, Rota, ServiceContext

from .client import Feed, send
from .settings import DATABASE, LEASE, PACE

app = Rota(DATABASE)
feed = Feed(app)
retry_policy = Retry(max_attempts=10, delay=1 * PACE, max_delay=30 * PACE)


# Monitors. One instance runs each; fencing refuses writes of a stale instance.


@app.service("filings", every=60 * PACE, lease=LEASE)
async def filings(ctx: ServiceContext) -> None:
    listed = await feed.get("/filings")
    # The transaction fails with LeadershipLost if another instance runs this service now.
    # New filings and their jobs are committed together.
    async with ctx.transaction() as connection:
        new = await app.insert_once(connection, "filings", listed, conflict=["number"])
        known = {each["number"]: each for each in listed}
        for [number] in new.new:
            await research.options(on=connection).start(f"filing {number}", known[number]["topic"])


@app.service("halts", every=10 * PACE, lease=LEASE)
async def halts(ctx: ServiceContext) -> None:
    listed = await feed.get("/halts")
    async with ctx.transaction() as connection:
        new = await app.insert_once(connection, "halts", listed, conflict=["number"])
        known = {each["number"]: each for each in listed}
        for [number] in new.new:
            halt = known[number]
            await alert(connection, f"halt {number}", f"{halt['symbol']} halted: {halt['reason']}")


articles = app.flow("articles")
app.schedule(every=30 * PACE)(articles)  # one run for each tick, on any instance


@dataclass
class Article:
    source: str
    topic: str
    symbol: str
    headline: str


@articles.task(retry=Retry(max_attempts=3, delay=1 * PACE))
async def wire() -> list[Article]:
    return await fetch("wire")


@articles.task(retry=Retry(max_attempts=3, delay=1 * PACE))
async def press() -> list[Article]:
    return await fetch("press")


@articles.task(retry=Retry(max_attempts=3, delay=1 * PACE))
async def blog() -> list[Article]:
    return await fetch("blog")


async def fetch(source: str) -> list[Article]:
    return [Article(**each) for each in await feed.get(f"/articles/{source}")]


@articles.task(when="all_done")
async def merge(
    ctx: Context,
    wire: list[Article] | None = None,
    press: list[Article] | None = None,
    blog: list[Article] | None = None,
) -> int:
    """Merge the same story from several sources into one article. A failed source does not block it."""
    by_topic: dict[str, list[Article]] = {}
    for article in [*(wire or []), *(press or []), *(blog or [])]:
        by_topic.setdefault(article.topic, []).append(article)
    rows = [
        {
            "topic": topic,
            "symbol": each[0].symbol,
            "headline": each[0].headline,
            "sources": [article.source for article in each],
        }
        for topic, each in by_topic.items()
    ]
    async with ctx.transaction() as connection:
        new = await app.insert_once(connection, "articles", rows, conflict=["topic"])
        for [topic] in new.new:
            await research.options(on=connection).start(f"article {topic}", topic)
        ctx.complete(new.inserted)
    return new.inserted


# Jobs for new items, on any instance


@dataclass
class Report:
    score: float
    cents: int


@app.task(queue="research", retry=retry_policy)
async def research(ctx: Context, about: str, topic: str) -> float:
    """Buy a report, which costs money. A filing and an article about the same topic need one report: the
    second job, on any instance, waits for the first and gets the same report.
    """
    report = await app.once(f"report {topic}", buy, topic, ttl=LEASE)
    async with (
        ctx.transaction() as connection
    ):  # raises ClaimLost if another worker holds the job now
        await connection.execute(
            "insert into findings (about, topic, score, cents) values (%s, %s, %s, %s)",
            (about, topic, report.score, report.cents),
        )
        if report.score > 0.7:
            await alert(connection, about, f"{about}: {report.score:.2f}")
        ctx.complete(report.score)
    return report.score


async def buy(topic: str) -> Report:
    return Report(**await feed.buy(topic))


async def alert(connection: Any, about: str, message: str) -> None:
    """Insert the row and start the job that sends the page, in the caller's transaction."""
    await connection.execute(
        "insert into alerts (about, message) values (%s, %s)", (about, message)
    )
    await page.options(on=connection).start(about, message)


@app.task(queue="pages", retry=retry_policy)
def page(ctx: Context, about: str, message: str) -> None:
    """Send the page. If the worker dies before the result is stored, the retry sends it again with the same
    key.
    """
    send("/pages", {"about": about, "message": message}, key=f"page {ctx.job_id}")
