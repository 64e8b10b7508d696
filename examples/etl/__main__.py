"""`python -m examples.etl`: a worker, one run, and its result.

Each day is one run: pass another day for another run. Kill the program at any time and start it again.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from datetime import UTC, datetime

from rota.model.events import Event, JobFinished, JobRetried, JobSuspended, WorkerDied

from .app import app, etl

APPROVE = """
After the check, the run waits for your approval. In another terminal:

  rota signal -a examples.etl.app:app {run} approval true       (or false)
  rota show -a examples.etl.app:app {run}                       shows its state
"""


def print_event(event: Event) -> None:
    """Print an event of this process as one line."""
    match event:
        case JobRetried(task=task, job=job, attempt=attempt, delay=delay):
            line = f"{task} ({job}) failed on attempt {attempt}; retrying in {delay:.1f} s"
        case JobFinished(task=task, job=job, state=state, seconds=seconds):
            line = f"{task} ({job}) {state} after {seconds:.1f} s"
        case JobSuspended(task="etl.approval", job=job):
            line = f"etl.approval ({job}) waits for your approval and occupies no worker"
        case JobSuspended(task=task, job=job):
            line = f"{task} ({job}) sleeps and occupies no worker"
        case WorkerDied(dead_worker=dead):
            line = f"worker {dead} is dead; its unfinished jobs run again"
        case _:
            return
    print(f"  {line}", flush=True)


async def main(day: str, answer: bool | None) -> None:
    app.subscribe(print_event)
    async with app:
        await app.migrate()
        run = await etl.options(key=f"etl {day}").start(day=day)
        status = "started" if run.created else "already started"
        print(f"run {run.id} of {day}: {status}", flush=True)
        if answer is None:
            print(APPROVE.format(run=run.id), flush=True)
        else:
            await run.signal("approval", answer)  # can be sent before the run waits for it
        async with app.worker():
            result = await run.result()
    cents = result.get("publish")
    print(f"{day}: discarded" if cents is None else f"{day}: {cents / 100:,.2f} published")


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m examples.etl", description=__doc__)
    parser.add_argument("day", nargs="?", default=f"{datetime.now(UTC):%Y-%m-%d}")
    answers = parser.add_mutually_exclusive_group()
    answers.add_argument("--approve", dest="answer", action="store_const", const=True)
    answers.add_argument("--refuse", dest="answer", action="store_const", const=False)
    options = parser.parse_args()
    asyncio.run(main(options.day, options.answer))
