"""Resources of a demo that must not outlive it: the database, worker processes and a port.

The database is in a temporary directory. Workers write their logs to a file there, because their lines
would disturb the view. Workers and the server are tied to this process, so they end with it even if it
is killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from rota.cli import event_loop, supervisor
from rota.cli.demo import tasks
from rota.cli.demo.state import DemoState
from rota.cli.exit_codes import CommandError
from rota.cli.options.web import DASHBOARD_PORT, LOOPBACK, has_dashboard, listen
from rota.model.text import counted

T = TypeVar("T")

APP = f"{tasks.__name__}:app"
STOP_TIMEOUT_SECONDS = 4.0
"""Time that a worker gets to stop before it is killed."""


class DemoEnvironment:
    def __init__(self, stack: AsyncExitStack, state: DemoState) -> None:
        self._stack = stack
        self._state = state
        self._children: dict[int, supervisor.SupervisedProcess] = {}

    async def create(self, port: int | None) -> None:
        """Create everything. The exit stack removes it, also after a failure or cancellation."""
        app, state = tasks.app, self._state
        if has_dashboard():
            ports = (DASHBOARD_PORT, 0) if port is None else (port,)
            bound = listen(LOOPBACK, *ports, remedy="--port")
            self._stack.callback(bound.close)
        state.begin_step("starting a PostgreSQL of its own")
        self._dsn = await self._start_database()
        app.database.switch(self._dsn)
        self._stack.push_async_callback(app.close)
        state.begin_step("creating the tables")
        await app.migrate()
        if has_dashboard():
            from rota.web.listen import base_url
            from rota.web.serve import serving
            from rota.web.site import ALL_PARTS, site
            from rota.web.tokens_auth import LocalAccess

            state.begin_step("starting the dashboard")
            local = LocalAccess()
            served = site(app, auth=local, bind=LOOPBACK, parts=ALL_PARTS)
            await self._stack.enter_async_context(serving(served, bound))
            self._stack.callback(app.readiness.drain)  # ends live updates of open pages
            state.link_to = partial(local.link, base_url(bound))
        self._stack.push_async_callback(self._stop_workers)
        state.begin_step("starting two workers")
        await asyncio.gather(self.add_worker(), self.add_worker())

    async def _start_database(self) -> str:
        from rota.localpg import LocalPostgres

        # Short, because the length of a socket's path is limited.
        directory = Path(tempfile.mkdtemp(prefix="rota-demo-"))
        self._stack.push_async_callback(_in_thread, partial(shutil.rmtree, directory, True))
        os.chmod(directory, 0o711)  # as root, the server runs as another user and needs access
        self._log = directory / "workers.log"
        server = LocalPostgres(directory / "pg")
        self._stack.push_async_callback(_in_thread, server.stop)
        dsn = await _in_thread(server.start)
        cores, version = counted(os.cpu_count() or 1, "core"), server.status().version
        self._state.counters.machine = f"{cores} with PostgreSQL {version}"
        return dsn

    async def add_worker(self) -> None:
        """Start a worker and wait until it is up."""
        arguments = ["worker", APP, "--dsn", self._dsn, "--log-level", "warning"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
        # Opened for appending, so that two workers do not overwrite each other's lines.
        with self._log.open("ab") as log:
            child = await event_loop.finish_even_if_cancelled(
                supervisor.SupervisedProcess.start(
                    supervisor.rota_command(arguments), (), environment, log.fileno()
                ),
                lambda child: self._children.update({child.pid: child}),
            )
        if not await child.wait_until_up():
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            raise CommandError(
                f"a worker did not come up: {lines[-1] if lines else 'it said nothing'}"
            )

    def freeze(self, pid: int) -> None:
        self._children[pid].send_signal(signal.SIGSTOP)

    async def kill(self, pid: int) -> None:
        child = self._children.pop(pid)
        child.send_signal(signal.SIGKILL)
        await child.wait_exit()

    async def _stop_workers(self) -> None:
        """Stop all workers, and kill those that do not stop in time."""
        children = self._children.values()
        exits = [asyncio.create_task(child.wait_exit()) for child in children]
        for child in children:
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)
        if exits:
            await asyncio.wait(exits, timeout=STOP_TIMEOUT_SECONDS)
        for child in children:
            child.send_signal(signal.SIGKILL)
        await asyncio.gather(*exits)


async def _in_thread(fn: Callable[[], T]) -> T:
    return await event_loop.finish_even_if_cancelled(asyncio.to_thread(fn))
