"""App process that uses the embedded PostgreSQL.

Tests control it line by line.

    app.py DIRECTORY [KEY=VALUE …]

It prints `asking`, starts the server, prints its DSN, and then runs one command per line.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg import LocalPostgres


def print_line(text: str) -> None:
    print(text, flush=True)


def fork(server: LocalPostgres, what: str) -> None:
    """Fork a child that uses the inherited server object and stays."""
    if not os.fork():
        match what:
            case "stops":
                server.stop()
            case "starts":
                server.start()
        print_line(f"child {os.getpid()}")
        signal.pause()


def main() -> None:
    options = dict(word.split("=", 1) for word in sys.argv[2:])
    profile = "test" if options.get("profile", "test") == "test" else "dev"
    server = LocalPostgres(Path(sys.argv[1]), profile=profile)  # type: ignore[arg-type]
    if options.get("sigint") == "ignore":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print_line("asking")
    try:
        print_line(server.start())
    except LocalPostgresError as error:
        print_line(f"error {error}".replace("\n", " "))
        raise SystemExit(1) from error
    for line in sys.stdin:
        match line.strip():
            case "stop":
                server.stop()
                print_line("stopped")
            case "start":
                print_line(server.start())
            case "fork a child that stops" | "fork a child that starts" | "fork a child":
                fork(server, line.split()[-1])
            case "leave":  # without stopping the server
                return


if __name__ == "__main__":
    main()
