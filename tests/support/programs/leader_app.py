"""Process that is a candidate for leader and acts whenever `is_leader()` is true.

    python leader_app.py '{"dsn": …, "name": …, "lease": …, "notes": …, "mutant": …}'

Acts are noted in a file, each with the times before and after the check, on a clock that all processes of
the machine share. Writes that assert the term are stored in a table; their loop keeps trying for a while
after the term has ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import psycopg

from rota import Rota
from rota.coord import candidate
from rota.coord.leader import Leader, Term
from rota.coord.lease import LeaseClock
from rota.errors import LeadershipLost, RotaError

ACT_EVERY = 0.003
ZOMBIE = 0.7
"""Seconds for which a process that lost its term keeps writing."""

TABLE = """
create table public.effects (
    instance text not null, term bigint not null, began timestamptz not null, ended timestamptz not null
)
"""
INSERT = """
insert into public.effects (instance, term, began, ended) values (%s, %s, %s, clock_timestamp())
"""


# Mutants


def no_trust_window() -> None:
    """Trust a term until its loss is reported."""
    candidate.TRUSTED_SHARE = 1e6


def trusted_for_too_long() -> None:
    """Trust a term for longer than the server waits."""
    candidate.TRUSTED_SHARE = 1.6


MUTANTS: dict[str, Callable[[], None]] = {
    "no trust window": no_trust_window,
    "trusted for too long": trusted_for_too_long,
}


# Actions


def act(leader: Leader, notes: TextIO) -> None:
    """Note acts from a thread, as often as possible."""
    while True:
        before = LeaseClock().now()
        leads = leader.is_leader()
        after = LeaseClock().now()
        term = leader.current if leads else None
        if term is not None:
            notes.write(f"act {term.number} {before:.6f} {after:.6f}\n")
        time.sleep(ACT_EVERY)


async def write(app: Rota, leader: Leader, instance: str) -> None:
    """Write in transactions that assert the term; some of them take long."""
    database = (await app.open()).database
    last: Term | None = None
    until = 0.0
    while True:
        await asyncio.sleep(random.uniform(0.002, 0.01))
        now = LeaseClock().now()
        if (term := leader.current) is not None:
            last, until = term, now + ZOMBIE
        if last is None or now > until:
            continue
        try:
            async with asyncio.timeout(60), database.transaction() as connection:
                # A frozen transaction blocks elections; the timeout bounds that.
                await connection.execute("set local idle_in_transaction_session_timeout = 500")
                await last.assert_held(connection)
                found = await connection.execute("select clock_timestamp()")
                [began] = await found.fetchone() or (None,)
                if random.random() < 0.2:
                    await asyncio.sleep(0.02)
                await connection.execute(INSERT, (instance, last.number, began))
        except LeadershipLost:
            last = None
        except (psycopg.Error, RotaError, OSError):
            await asyncio.sleep(0.02)


async def main(order: dict[str, Any], notes: TextIO) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    def won(term: Term) -> None:
        notes.write(f"won {term.number} {LeaseClock().now():.6f}\n")

    def lost(term: Term) -> None:
        notes.write(f"lost {term.number} {LeaseClock().now():.6f} {term.lost_reason}\n")

    async with Rota(order["dsn"], statement_timeout=2.0, connections=3) as app:
        leader = app.leader(
            order["name"],
            lease=order["lease"],
            label=order["instance"],
            on_elected=won,
            on_lost=lost,
        )
        async with leader:
            threading.Thread(target=act, args=(leader, notes), daemon=True).start()
            notes.write(f"up {LeaseClock().now():.6f}\n")
            writing = asyncio.create_task(write(app, leader, order["instance"]))
            await stop.wait()
            writing.cancel()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if given.get("mutant"):
        MUTANTS[given["mutant"]]()
    file = Path(given["notes"]).open("a", buffering=1)  # noqa: SIM115 - a thread writes to the end
    asyncio.run(main(given, file))
