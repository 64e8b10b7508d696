"""Process that forks while it holds a lock.

Parent and child print the lock's state as each of them sees it.

    python forker.py DSN TTL
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import psycopg

from rota import Rota
from rota.errors import LockLost

RENEWALS = "select renewals from rota.locks where name = 'invoices'"


def print_json(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def main(dsn: str, ttl: float) -> None:
    app = Rota(dsn)
    lock = app.lock("invoices", ttl=ttl).sync.acquire()
    pid = os.fork()
    if pid == 0:
        held, told = lock.held, None
        try:
            lock.release()
        except LockLost as lost:
            told = str(lost)
        free = app.lock("invoices", ttl=ttl).sync.try_acquire()
        with app.lock("other", ttl=ttl).sync as other:
            print_json(held=held, told=told, free=free, other=other.held)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    with psycopg.connect(dsn, autocommit=True) as connection:
        # Longer than the TTL, because a lock is renewed after a third of it.
        while connection.execute(RENEWALS).fetchone() < (4,):  # type: ignore[operator]
            pass
    print_json(child=os.waitstatus_to_exitcode(status), held=lock.held, token=lock.token)
    lock.release()
    print_json(released=True)
    app.close_sync()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
