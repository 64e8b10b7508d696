"""Process with a wall clock that the test steps while the process holds a lock or tries to acquire one.

    python -m support.programs.stepped_clock DSN hold|want TTL [MUTANT]

Prints lines of JSON with its clock readings and the state of its lock until it is stopped.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from typing import Any

from rota import Rota
from rota.coord.lease import LeaseClock
from rota.errors import LockLost
from support import lock_mutants as mutants


def print_json(**what: Any) -> None:
    print(json.dumps({"wall": time.time(), "trust": LeaseClock().now(), **what}), flush=True)


async def main(dsn: str, what: str, ttl: float) -> None:
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    async with Rota(dsn) as app:
        if what == "want":
            while not ends.is_set():
                print_json(got=await app.try_lock("invoices", ttl=ttl) is not None)
                await asyncio.sleep(0.1)
            return
        try:
            async with app.lock("invoices", ttl=ttl) as lock:
                while not ends.is_set():
                    print_json(held=lock.held, lost=lock.lost.is_set())
                    await asyncio.sleep(0.1)
            print_json(told=None)
        except LockLost as lost:
            print_json(told=str(lost))


if __name__ == "__main__":
    if len(sys.argv) > 4:
        mutants.apply(sys.argv[4])
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
