"""Processes that contend for one lock, write under it and log every event, each to its own file.

    python -m support.programs.lock_contender DSN DIRECTORY COUNT SECONDS TTL SEED [MUTANT]

Forks COUNT contenders after all imports and prints their pids. Each contender ends after SECONDS, and all
of them end with the parent process.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psycopg

from chaos.history import History, path_of
from rota import Rota
from rota.app.locks import Lock
from rota.errors import Busy, LockLost
from rota.model.events import Event, LockForfeited
from support import lock_mutants as mutants

NAME = "contested"
DIE_WITH_PARENT = 1
LOOK_EVERY = 0.01

EFFECT = """
insert into public.effects (token, pid, began, ended, largest)
select %s, %s, %s, extract(epoch from clock_timestamp()), (select max(token) from public.effects)
"""
NOW = "select extract(epoch from clock_timestamp())::float8"


class Contender:
    def __init__(self, dsn: str, history: History, ttl: float, chance: random.Random) -> None:
        self._dsn = dsn
        self._history = history
        self._ttl = ttl
        self._chance = chance

    async def contend(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        app = Rota(self._dsn, connections=2)
        app.subscribe(self._hear)
        async with (
            app,
            await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection,
        ):
            while time.monotonic() < until:
                lock = app.lock(NAME, ttl=self._ttl, wait=0.5)
                try:
                    await self._once(lock, connection)
                except Busy:
                    continue
                except LockLost as lost:
                    self._note("told", lock, why=str(lost))
                else:
                    self._note("left", lock)
                await asyncio.sleep(self._chance.uniform(0, 0.05))

    async def _once(self, lock: Lock, connection: psycopg.AsyncConnection[tuple[float]]) -> None:
        async with lock:
            self._note("acquired", lock)
            for _ in range(self._chance.choice((0, 1, 2, 3, 4))):
                await self._believe(lock, self._chance.uniform(0, 0.3) * self._ttl)
                long = self._chance.random() < 0.3
                await self._act(lock, connection, self._ttl * (1.3 if long else 0.1))
            # Half of the bodies ignore the loss; the fence refuses their writes.
            stubborn = self._chance.random() < 0.5
            if self._chance.random() < 0.3:
                await self._believe(lock, 3 * self._ttl, stubborn)

    async def _believe(self, lock: Lock, seconds: float, stubborn: bool = True) -> None:
        """Poll `lock.held` for `seconds` and note the last time at which it was true."""
        until = time.monotonic() + seconds
        believed = 0.0
        while time.monotonic() < until and (stubborn or not lock.lost.is_set()):
            at = time.time()
            if lock.held:
                believed = at
            await asyncio.sleep(LOOK_EVERY * self._chance.random())
        if believed:
            self._note("believed", lock, until=believed)

    async def _act(
        self, lock: Lock, connection: psycopg.AsyncConnection[tuple[float]], seconds: float
    ) -> None:
        try:
            async with connection.transaction():
                await lock.assert_held(connection)
                [[began]] = await (await connection.execute(NOW)).fetchall()
                await asyncio.sleep(self._chance.random() * seconds)
                await connection.execute(EFFECT.encode(), (lock.token, os.getpid(), began))
        except LockLost:
            self._note("refused", lock)
        else:
            self._note("acted", lock)

    def _note(self, what: str, lock: Lock, **more: object) -> None:
        self._history.note(what, token=lock.token, **more)

    def _hear(self, event: Event) -> None:
        if isinstance(event, LockForfeited):
            self._history.note("forfeited", token=event.token)


def run_contender(
    dsn: str, directory: Path, number: int, seconds: float, ttl: float, seed: str
) -> None:
    with suppress(OSError):
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    logging.basicConfig(level=logging.ERROR)
    history = History(path_of(directory, str(number)))
    history.note("up", pid=os.getpid())
    contender = Contender(dsn, history, ttl, random.Random(f"{seed}:{number}"))
    asyncio.run(contender.contend(seconds))
    history.note("down")


def main(
    dsn: str, directory: str, count: str, seconds: str, ttl: str, seed: str, mutant: str = ""
) -> None:
    if mutant:
        mutants.apply(mutant)
    pids = []
    for number in range(int(count)):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                run_contender(dsn, Path(directory), number, float(seconds), float(ttl), seed)
                code = 0
            except BaseException:
                logging.exception("a contender failed")
            finally:
                logging.shutdown()
                os._exit(code)
        pids.append(pid)
    print(*pids, flush=True)
    sys.exit(any(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))


if __name__ == "__main__":
    main(*sys.argv[1:])
