"""Process that holds a lock and prints, as lines of JSON, the state of the lock as it sees it.

python holder.py DSN TTL [MUTANT]
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from rota import Rota
from rota.errors import LockLost

PAUSE = 0.6
"""Seconds between two loop turns that show that the process was stopped."""


LONGEST = 60.0
"""Seconds after which the process ends by itself, if the test did not end it."""


def print_json(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(dsn: str, ttl: float) -> None:
    app = Rota(dsn)
    lock = app.lock("invoices", ttl=ttl, label="holder").sync.acquire()
    # Read the clock before the first line: the test may stop the process as soon as it reads the line.
    began = before = time.clock_gettime(time.CLOCK_MONOTONIC)
    print_json(token=lock.token, pid=os.getpid(), held=lock.held)
    while before - began < LONGEST:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        if now - before > PAUSE:
            break
        before = now
    # The first statement after SIGCONT: no other thread has run yet, so `held` must follow from the clock.
    held = lock.held
    print_json(held=held, slept=now - before)
    try:
        lock.release()
        print_json(told=None)
    except LockLost as lost:
        print_json(told=str(lost))
    app.close_sync()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
