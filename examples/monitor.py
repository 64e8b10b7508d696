"""Monitor that one instance runs while the rest stand by: each finding is stored once.

python examples/monitor.py                                  in two terminals: one runs it, one stands by
kill -9 …                                                   kill the first, and the second takes over
cd examples && rota worker monitor:app --processes 3        or three worker processes under one parent
cd examples && rota services -a monitor:app                 running instance, standbys, iterations
"""

import asyncio
import time

from rota import Rota, ServiceContext

app = Rota("local")  # the embedded PostgreSQL; Rota() uses ROTA_DATABASE_URL

TABLE = "create table if not exists filings (number bigint primary key, seen_by int, term bigint)"


async def fetch() -> list[int]:
    """Return the latest numbers of a feed; most of them were returned before, too."""
    await asyncio.sleep(0.1)
    last = int(time.time())
    return [last - 2, last - 1, last]


@app.service("filings", every=1)
async def filings(ctx: ServiceContext) -> None:
    numbers = await fetch()
    # The transaction asserts that this instance still runs the service: a stale instance writes nothing.
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
