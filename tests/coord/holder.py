"""A process that holds a lock and says, a line of JSON each, what it is told about it.

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
"""Seconds in which this process had no turn: it was stopped."""


LONGEST = 60.0
"""Seconds after which whoever started it has forgotten it."""


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(dsn: str, ttl: float) -> None:
    app = Rota(dsn)
    lock = app.lock("invoices", ttl=ttl, label="holder").sync.acquire()
    # Before it says so: who hears it may stop it at once.
    began = before = time.clock_gettime(time.CLOCK_MONOTONIC)
    say(token=lock.token, pid=os.getpid(), held=lock.held)
    while before - began < LONGEST:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        if now - before > PAUSE:
            break
        before = now
    # The first thing after waking up: this thread has gone on where it was, and no other has had a turn.
    held = lock.held
    say(held=held, slept=now - before)
    try:
        lock.release()
        say(told=None)
    except LockLost as lost:
        say(told=str(lost))
    app.close_sync()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
