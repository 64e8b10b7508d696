"""Injector of the scheduled faults."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from random import Random

import psycopg

from rota.testing.proxy.proxy import Proxy

from .evidence import Fault
from .schedule import Planned
from .server import Server
from .worker_processes import WorkerProcesses

LEAVE_WITHIN = 20.0

_TERMINATE = """
select count(pg_terminate_backend(pid))
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and backend_type = 'client backend'
   and application_name <> 'sampler'
   and abs(hashint4(pid)) % 100 < %s
"""


def application_name(slot: int) -> str:
    """Return the application name under which the worker of a slot connects."""
    return f"slot{slot}"


class Injector:
    def __init__(
        self, server: Server, dsn: str, crew: WorkerProcesses, proxy: Proxy | None, random: Random
    ) -> None:
        self._server = server
        self._dsn = dsn
        self._crew = crew
        self._proxy = proxy
        self._random = random
        self._tasks: set[asyncio.Task[None]] = set()
        self.done: Counter[str] = Counter()
        self.faults: list[Fault] = []

    async def run(self, planned: list[Planned]) -> None:
        """Inject each fault at its time, even if the previous one has not ended."""
        began = time.monotonic()
        for each in planned:
            await asyncio.sleep(max(began + each.at - time.monotonic(), 0))
            task = asyncio.create_task(self._do(each))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Wait until all faults have ended and heal the network."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._proxy is not None:
            self._proxy.cancel_cuts()
            self._proxy.heal()

    async def _do(self, fault: Planned) -> None:
        began = time.time()
        done = await getattr(self, f"_{fault.kind}")(fault)
        if done:
            self.done[fault.kind] += 1
            if fault.kind not in ("kill", "freeze"):  # the crew records these itself
                member = None if fault.slot is None else self._crew.at(fault.slot)
                pid = member.pid if member else None
                if fault.slot is None or pid is not None:
                    self.faults.append(Fault(fault.kind, began, time.time(), pid, fault.slot))

    async def _kill(self, fault: Planned) -> bool:
        assert fault.slot is not None
        return self._crew.kill(fault.slot, fault.lasts) is not None

    async def _freeze(self, fault: Planned) -> bool:
        assert fault.slot is not None
        return await self._crew.freeze(fault.slot, fault.lasts) is not None

    async def _crash(self, fault: Planned) -> bool:
        await self._server.crash(immediately=fault.how["immediately"])
        return True

    async def _outage(self, fault: Planned) -> bool:
        if self._proxy is not None:
            for slot in fault.how["late"]:
                self._proxy.refuse(application=application_name(slot))
        await self._server.crash(immediately=False, away=fault.lasts)
        if self._proxy is not None:
            await asyncio.sleep(fault.how["by"])
            self._proxy.heal()
        return True

    async def _drain(self, fault: Planned) -> bool:
        assert fault.slot is not None
        return bool(await self._crew.drain(fault.slot, LEAVE_WITHIN))

    async def _cut(self, fault: Planned) -> bool:
        assert self._proxy is not None
        self._proxy.cut(**fault.how)
        return True

    async def _reset(self, fault: Planned) -> bool:
        assert self._proxy is not None
        return (
            self._proxy.reset(
                application=None if fault.slot is None else application_name(fault.slot)
            )
            > 0
        )

    async def _half_open(self, fault: Planned) -> bool:
        assert self._proxy is not None
        assert fault.slot is not None
        return (
            self._proxy.half_open(fault.how["gone"], application=application_name(fault.slot)) > 0
        )

    async def _drop(self, fault: Planned) -> bool:
        assert self._proxy is not None
        assert fault.slot is not None
        dropped = self._proxy.drop(application=application_name(fault.slot))
        await asyncio.sleep(fault.lasts)
        self._proxy.heal()
        return dropped > 0

    async def _hold(self, fault: Planned) -> bool:
        assert self._proxy is not None
        self._proxy.hold()
        await asyncio.sleep(fault.lasts)
        self._proxy.heal()
        return True

    async def _terminate(self, fault: Planned) -> bool:
        with suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(
                self._dsn, autocommit=True
            ) as connection:
                share = int(100 * fault.how["share"])
                found = await (await connection.execute(_TERMINATE, (share,))).fetchone()
                return found is not None and found[0] > 0
        return False
