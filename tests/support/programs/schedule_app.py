"""Fifty schedules of a task that notes its runs, and worker processes for fault injection.

Orders arrive on standard input as lines of JSON. For each order a worker is forked after all imports.
Starts and ends of workers are printed on standard output. The workers end with the input.

    {"number": 3, "dsn": "…", "notes": "…", "mutant": ["lock", …]}
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg  # noqa: F401 - imported here, so that no worker has to

from rota import Context, Rota
from rota.app import client  # noqa: F401
from rota.engine.scheduling import fire as scheduling_fire
from rota.engine.worker import worker  # noqa: F401
from rota.store import migrate  # noqa: F401

AT_MOST = 30
"""Ticks that are caught up; no fault in these tests lasts longer."""

EVERY = (0.5, 0.6, 0.75, 0.8, 1.0, 1.1, 1.25, 1.5, 1.7, 2.0)


def schedules() -> dict[str, dict[str, Any]]:
    """Return the definitions of the schedules by name."""
    found: dict[str, dict[str, Any]] = {}
    for number in range(50):
        how: dict[str, Any] = {"overlap": "allow", "catch_up": "all", "at_most": AT_MOST}
        if number % 5 == 4:
            how = {"overlap": "allow", "catch_up": "latest"}
        if number >= 40:
            how["cron"] = "*/1 * * * * *" if number < 45 else "*/2 * * * * *"
        else:
            how["every"] = EVERY[number % 10]
        found[f"s{number:02}"] = how
    return found


def define(app: Rota) -> None:
    @app.task
    async def note(ctx: Context, schedule: str) -> list[str]:
        assert ctx.scheduled_for is not None
        return [schedule, ctx.scheduled_for.isoformat()]

    for name, how in schedules().items():
        app.schedule(name=name, input={"schedule": name}, **how)(note)


def count_polls(notes: Path) -> None:
    """Note each poll with the number of schedules it fired: 0 if another worker was faster."""
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    fire = scheduling_fire.fire

    async def counted(*given: Any) -> Any:
        fired = await fire(*given)
        os.write(file, b"%d\n" % fired.handled)
        return fired

    scheduling_fire.fire = counted  # type: ignore[assignment]


async def work(order: dict[str, Any]) -> None:
    app = Rota(
        order["dsn"],
        poll_interval=0.25,
        heartbeat_interval=0.25,
        dead_after=2,
        connections=4,
        drain_timeout=5,
    )
    define(app)
    async with app:
        while True:
            try:
                await app.work(concurrency=50)
            except Exception as error:  # the server may be unreachable at the start
                logging.warning("it starts again: %s", error)
                await asyncio.sleep(0.1)
            else:
                return


def run_worker(order: dict[str, Any]) -> None:
    logging.basicConfig(level=logging.ERROR)
    if order.get("mutant"):
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
        from support.tick_safeguards import disable_safeguards

        disable_safeguards(order["mutant"])
    count_polls(Path(order["notes"]))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    asyncio.run(work(order))


def print_json(**said: Any) -> None:
    os.write(1, json.dumps(said).encode() + b"\n")


def fork(order: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run_worker(order)
            code = 0
        except BaseException:
            logging.exception("a worker failed")
        finally:
            logging.shutdown()
            os._exit(code)
    print_json(number=order["number"], born=pid)
    return pid


def main() -> None:
    alive: dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                alive[fork(order)] = order["number"]
        with suppress(ChildProcessError):
            while alive and (gone := os.waitpid(-1, os.WNOHANG))[0]:
                print_json(number=alive.pop(gone[0]), gone=os.waitstatus_to_exitcode(gone[1]))
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
