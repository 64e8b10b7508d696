"""The app that worker processes of these tests run: it writes their alerts to a file.

python worker_app.py DSN FILE [QUEUE]
"""

from __future__ import annotations

import asyncio
import os
import sys

from rota import Rota
from rota.engine.alerting import delivery, evaluator
from rota.model import alert_decision
from rota.model.events import AlertCleared, AlertRaised, Event

dsn, notes = sys.argv[1], sys.argv[2]
(
    evaluator.EVALUATE_SECONDS,
    evaluator.FIRST_EVALUATION_SECONDS,
    alert_decision.CLOSE_AFTER_SECONDS,
) = (
    0.2,
    0.0,
    0.4,
)
delivery.LEASE_SECONDS, delivery.FIRST_RETRY_SECONDS = 1.0, 0.2
app = Rota(dsn, heartbeat_interval=1.0, dead_after=5.0, poll_interval=0.2)


@app.task(queue=sys.argv[3] if len(sys.argv) > 3 else "default")
async def work() -> None: ...


def note(event: Event) -> None:
    if isinstance(event, AlertRaised | AlertCleared):
        with open(notes, "a") as file:
            file.write(f"{os.getpid()} {type(event).__name__} {event.kind}: {event.subject}\n")


app.subscribe(note)


async def main() -> None:
    try:
        await app.work()
    finally:
        await app.close()


asyncio.run(main())
