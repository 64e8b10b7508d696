"""Process that holds a lock and prints, as lines of JSON, the state of the lock as it sees it.

python holder.py DSN TTL [MUTANT]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from rota import Rota
from rota.errors import LockLost

LONGEST = 60.0
"""Seconds after which the process ends by itself, if the test did not end it."""


def print_json(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(dsn: str, ttl: float) -> None:
    app = Rota(dsn)
    lock = app.lock("invoices", ttl=ttl, label="holder").sync.acquire()
    # Read the clock before the first line: the test may stop the process as soon as it reads the line.
    began = before = time.clock_gettime(time.CLOCK_MONOTONIC)
    slept, signals = 0.0, list[int]()
    signal.signal(signal.SIGCONT, lambda number, frame: signals.append(number))
    print_json(token=lock.token, pid=os.getpid(), held=lock.held)
    resumed = False
    while not resumed and before - began < LONGEST:
        resumed = bool(signals)  # read before the clock, so that the pause is measured
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        slept, before = max(slept, now - before), now
    # One of the first statements after SIGCONT, so `held` must follow from the clock.
    held = lock.held
    print_json(held=held, slept=slept)
    try:
        lock.release()
        print_json(told=None)
    except LockLost as lost:
        print_json(told=str(lost))
    app.close_sync()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
