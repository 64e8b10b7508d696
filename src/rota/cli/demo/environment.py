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
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rota.cli import event_loop, supervisor
from rota.cli.demo import tasks
from rota.cli.demo.state import DemoState
from rota.cli.exit_codes import FAILED, CommandError

if TYPE_CHECKING:
    from rota.web.tokens_auth import LocalAccess

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
FIRST_PORT = 8000
MAX_PORT_TRIES = 20
"""Ports that are tried from FIRST_PORT on, before any free port is taken."""

STOP_TIMEOUT_SECONDS = 4.0
"""Time that a worker gets to stop before it is killed."""


def bind(port: int | None) -> socket.socket:
    """Return a listening socket at this port, or at the first free one."""
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + MAX_PORT_TRIES), 0]
    for each in ports:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((LOOPBACK, each))
            bound.listen(128)
        except OSError as error:
            bound.close()
            failure = error
        else:
            bound.setblocking(False)
            return bound
    raise CommandError(
        f"cannot listen at {LOOPBACK} port {ports[0]}: {failure.strerror}; choose another with --port",
        FAILED,
    )


class DemoEnvironment:
    def __init__(self, dsn: str, directory: Path) -> None:
        self.dsn = dsn
        self._log = directory / "workers.log"
        self._children: dict[int, supervisor.SupervisedProcess] = {}

    async def add_worker(self) -> int:
        """Start a worker and wait until it is up. Return its process id."""
        arguments = ["worker", f"{tasks.__name__}:app", "--dsn", self.dsn, "--log-level", "warning"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
        # Opened for appending, so that two workers do not overwrite each other's lines.
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            child = await event_loop.finish_even_if_cancelled(
                supervisor.SupervisedProcess.start(
                    supervisor.rota_command(arguments), (), environment, log
                ),
                lambda child: self._children.update({child.pid: child}),
            )
        finally:
            os.close(log)
        if not await child.wait_until_up():
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            raise CommandError(
                f"a worker did not come up: {lines[-1] if lines else 'it said nothing'}"
            )
        return child.pid

    def freeze(self, pid: int) -> None:
        self._children[pid].send_signal(signal.SIGSTOP)

    async def kill(self, pid: int) -> None:
        child = self._children.pop(pid)
        child.send_signal(signal.SIGKILL)
        await child.wait_exit()

    async def close(self) -> None:
        """Stop all workers, and kill those that do not stop in time."""
        children, self._children = list(self._children.values()), {}
        exits = [asyncio.create_task(child.wait_exit()) for child in children]
        for child in children:
            child.send_signal(signal.SIGTERM)
            child.send_signal(signal.SIGCONT)
        if exits:
            await asyncio.wait(exits, timeout=STOP_TIMEOUT_SECONDS)
        for child, exit_task in zip(children, exits, strict=True):
            if not exit_task.done():
                child.send_signal(signal.SIGKILL)
        await asyncio.gather(*exits)


@asynccontextmanager
async def demo_environment(
    state: DemoState, bound: socket.socket
) -> AsyncIterator[DemoEnvironment]:
    """Create the environment, and remove it also after a failure or cancellation."""
    app = tasks.app
    async with AsyncExitStack() as stack:
        stack.callback(bound.close)
        state.setup_step = "starting a PostgreSQL of its own"
        directory, dsn = await stack.enter_async_context(_database())
        app.database.switch(dsn)
        stack.push_async_callback(app.close)
        state.setup_step = "making the tables"
        await app.migrate()
        async with (await app.open()).database.connection() as connection:
            await connection.execute(tasks.CREATE_TABLE)
        if _has_dashboard():
            local = await stack.enter_async_context(_dashboard(bound))
            state.link_to = partial(local.link, f"http://{LOOPBACK}:{bound.getsockname()[1]}")
        environment = DemoEnvironment(dsn, directory)
        stack.push_async_callback(environment.close)
        state.setup_step = "starting two workers"
        yield environment


@asynccontextmanager
async def _database() -> AsyncIterator[tuple[Path, str]]:
    from rota.localpg import LocalPostgres

    # Short, because the length of a socket's path is limited.
    directory = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    server = LocalPostgres(directory / "pg")
    try:
        os.chmod(directory, 0o711)  # as root, the server runs as another user and needs access
        yield directory, await _in_thread(server.start)
    finally:
        await _in_thread(server.stop)
        await _in_thread(lambda: shutil.rmtree(directory, ignore_errors=True))


def _has_dashboard() -> bool:
    return all(find_spec(name) for name in ("starlette", "uvicorn", "jinja2"))


@asynccontextmanager
async def _dashboard(bound: socket.socket) -> AsyncIterator[LocalAccess]:
    from rota.web.serve import serving
    from rota.web.site import ALL_PARTS, site
    from rota.web.tokens_auth import LocalAccess

    local = LocalAccess()
    served = site(tasks.app, auth=local, bind=LOOPBACK, parts=ALL_PARTS)
    async with serving(served, bound):
        try:
            yield local
        finally:
            tasks.app.readiness.drain()  # ends live updates of open pages


async def _in_thread(fn: Callable[[], T]) -> T:
    return await event_loop.finish_even_if_cancelled(asyncio.to_thread(fn))
