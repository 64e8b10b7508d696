"""Monitor that one instance runs while the rest stand by: each finding is stored once.

python examples/monitor.py                                  in two terminals: one watches, the other waits
kill -9 …                                                   kill the first, and the second takes over
cd examples && rota worker monitor:app --processes 3        or three of them under one parent
cd examples && rota services -a monitor:app                 running instance, standbys, iterations
"""

import asyncio
import time

from rota import Rota, ServiceContext

app = Rota("local")  # the embedded PostgreSQL; Rota() takes the one that ROTA_DATABASE_URL names

TABLE = "create table if not exists filings (number bigint primary key, seen_by int, term bigint)"


async def fetch() -> list[int]:
    """Return the last few numbers of a feed, most of which were seen before."""
    await asyncio.sleep(0.1)
    last = int(time.time())
    return [last - 2, last - 1, last]


@app.service("filings", every=1)
async def filings(ctx: ServiceContext) -> None:
    numbers = await fetch()
    # Asserts that no other instance runs this service now: rows of a stale instance are refused.
    async with ctx.transaction() as connection:
        await connection.execute(TABLE)
        rows = [
            {"number": number, "seen_by": ctx.iteration, "term": ctx.term} for number in numbers
        ]
        found = await app.insert_once(connection, "filings", rows, conflict=["number"])
    print(f"iteration {ctx.iteration}: {found.inserted} new, {found.duplicates} known", flush=True)


async def main() -> None:
    async with app:
        await app.work()  # until SIGTERM or Ctrl-C; then another instance takes over


if __name__ == "__main__":
    asyncio.run(main())
