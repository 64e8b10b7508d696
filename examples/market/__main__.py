"""`python -m examples.market`: the feed, a few instances of the monitor, and a periodic summary.

Ctrl-C ends all of them. The instances are ordinary workers; kill or freeze one, and watch the totals.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg

from rota.localpg import LocalPostgres

from .settings import DATABASE, FEED
from .tables import prepare

COUNTS = """
    select (select count(*) from filings), (select count(*) from halts), (select count(*) from articles),
           (select count(*) from findings), (select count(*) from alerts)
"""


@contextmanager
def database() -> Iterator[str]:
    """Yield the DSN in ROTA_DATABASE_URL, or that of an embedded PostgreSQL, which stops afterwards."""
    if DATABASE != "local":
        yield DATABASE
    else:
        with LocalPostgres() as server:
            yield server.dsn


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until this one stops. Ctrl-C does not reach it directly."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)  # a frozen process receives no other signal
            process.send_signal(signal.SIGTERM)
        process.wait()


def read_journal(journal: Path) -> tuple[int, int, int]:
    """Return from the feed's journal: requests, refused requests, and cents spent."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    limited = [line for line in lines if line.get("limited")]
    too_many = sum(line["status"] == 429 for line in limited)
    return len(limited), too_many, sum(line.get("cents", 0) for line in limited)


def print_totals(dsn: str, journal: Path) -> None:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(COUNTS).fetchone() or (0,) * 5
    requests, too_many, cents = read_journal(journal)
    print(
        "{} filings, {} halts, {} articles, {} findings, {} alerts;".format(*found),
        f"feed: {requests} requests, {too_many} refused, {cents / 100:.2f} spent",
        flush=True,
    )


def main(instances: int, pace: str, seconds: float, every: float) -> None:
    package = __package__ or "market"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="market-"))
        dsn = stack.enter_context(database())
        asyncio.run(prepare(dsn))
        journal = Path(directory) / "feed.jsonl"
        journal.touch()
        port = FEED.rsplit(":", 1)[1]
        feed = (f"{package}.feed", "--port", port, "--journal", f"{journal}")
        stack.enter_context(running(*feed, MARKET_PACE=pace))
        worker = ("rota", "worker", f"{package}.app:app", "--log-level", "warning")
        for number in range(1, instances + 1):
            process = stack.enter_context(running(*worker, MARKET_PACE=pace, ROTA_DATABASE_URL=dsn))
            print(
                f"instance {number} is process {process.pid}: kill -9 it, or kill -STOP", flush=True
            )
        ends = time.monotonic() + seconds
        with suppress(KeyboardInterrupt):
            while (left := ends - time.monotonic()) > 0:
                time.sleep(min(left, every))
                print_totals(dsn, journal)
        print("stopping: running jobs finish first", flush=True)


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m examples.market", description=__doc__)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--pace", default="0.1", help="1: real time; 0.1: ten times as fast")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="duration; default: until Ctrl-C"
    )
    parser.add_argument("--every", type=float, default=5, help="seconds between two summaries")
    options = parser.parse_args()
    main(options.instances, options.pace, options.seconds, options.every)
