"""Processes that migrate one database at the same moment."""

from __future__ import annotations

import asyncio
import multiprocessing
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from rota.model.settings import Settings
from rota.store.database import Database
from rota.store.migrate import migrate


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """Result of one process."""

    applied: int
    error: str = ""


def migrate_concurrently(dsn: str, processes: int) -> list[ProcessResult]:
    """Migrate with this many processes at once; return the result of each."""
    # Forked from a server that has imported everything: starting an interpreter for each takes a minute.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "rota.store.migrate", "psycopg"])
    line: Barrier = context.Barrier(processes)
    answers: Queue[ProcessResult] = context.Queue()
    racers = [
        context.Process(target=_run, args=(dsn, line, answers), daemon=True)
        for _ in range(processes)
    ]
    for racer in racers:
        racer.start()
    found = [answers.get(timeout=60) for _ in racers]
    for racer in racers:
        racer.join(timeout=60)
    return found


def _run(dsn: str, line: Barrier, answers: Queue[ProcessResult]) -> None:
    line.wait(timeout=60)
    try:
        answers.put(ProcessResult(asyncio.run(_migrate(dsn))))
    except Exception as error:
        answers.put(ProcessResult(0, f"{type(error).__name__}: {error}"))


async def _migrate(dsn: str) -> int:
    database = Database(dsn, Settings())
    try:
        return len(await migrate(database))
    finally:
        await database.close()
