"""`python -m examples.agents`: two instances of the API on two ports, on one database.

Ctrl-C stops them gracefully. Put a load balancer in front of them, or send requests to either.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager

from rota.localpg import LocalPostgres

from .tables import prepare

TRY = """
In another terminal:

  curl -s localhost:{port}/actions -H 'Content-Type: application/json' \\
       -d '{{"name": "tea", "type": "remind", "config": {{"text": "tea"}}, "every": 5}}'
  curl -s localhost:{port}/actions/tea | python -m json.tool
  curl -s localhost:{port}/agents -H 'Content-Type: application/json' \\
       -d '{{"goal": "tidy up", "turns": 20}}'
  curl -s -X POST localhost:{other}/agents/RUN/pause
"""


@contextmanager
def database() -> Iterator[str]:
    """Yield the DSN in ROTA_DATABASE_URL, or that of an embedded PostgreSQL, which stops afterwards."""
    if dsn := os.environ.get("ROTA_DATABASE_URL"):
        yield dsn
    else:
        with LocalPostgres() as server:
            yield server.dsn


def main(port: int, drain_delay: float) -> None:
    package = __package__ or "agents"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with database() as dsn:
        asyncio.run(prepare(dsn))
        instances = []
        for each in (port, port + 1):
            arguments = ("--port", f"{each}", "--drain-delay", f"{drain_delay}")
            process = subprocess.Popen(
                [sys.executable, "-m", "rota", "serve", f"{package}.api:api", *arguments],
                env={**os.environ, "ROTA_DATABASE_URL": dsn},
                start_new_session=True,  # so that Ctrl-C signals it only once, through this program
            )
            instances.append(process)
            print(f"instance at http://127.0.0.1:{each} is process {process.pid}", flush=True)
        print(TRY.format(port=port, other=port + 1), flush=True)
        try:
            for process in instances:
                process.wait()
        except KeyboardInterrupt:
            for process in instances:
                if process.poll() is None:
                    process.terminate()
            for process in instances:
                process.wait()


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m examples.agents", description=__doc__)
    parser.add_argument(
        "--port",
        type=int,
        default=8001,
        help="port of the first instance; the second uses the next port",
    )
    parser.add_argument(
        "--drain-delay", type=float, default=2, help="seconds an instance serves after SIGTERM"
    )
    options = parser.parse_args()
    main(options.port, options.drain_delay)
