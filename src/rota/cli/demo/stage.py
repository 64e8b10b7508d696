"""All that a demo needs and that must not outlive it: a database, worker processes, a port.

The database lies in a directory made for it. What workers say goes to a file there, for their lines would
spoil the view. They hang on this process by a lifeline, so they end with it, whatever it dies of; and so
does the server.
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

from rota.cli import crew, loops
from rota.cli.demo import tasks
from rota.cli.demo.scene import Scene
from rota.cli.endings import FAILED, Told

if TYPE_CHECKING:
    from rota.web.doorman import LocalAccess

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
FIRST_PORT = 8000
PORTS = 20
"""Tried from the first on; then any that is free."""

LEAVE_WITHIN = 4.0
"""Seconds a worker has to leave by itself."""


def bind(port: int | None) -> socket.socket:
    """A socket at this port, or at the first of some that is free."""
    wanted = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + PORTS), 0]
    for each in wanted:
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
    raise Told(
        f"cannot listen at {LOOPBACK} port {wanted[0]}: {failure.strerror}; say another with --port",
        FAILED,
    )


class Stage:
    def __init__(self, dsn: str, home: Path) -> None:
        self.dsn = dsn
        self._log = home / "workers.log"
        self._children: dict[int, crew.Child] = {}

    async def add_worker(self) -> int:
        """Start one, and wait until it is up. Answers its process number."""
        words = ["worker", f"{tasks.__name__}:app", "--dsn", self.dsn, "--log-level", "warning"]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ROTA_")
        }
        # For appending: of two that write, neither writes over the other.
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            child = await loops.to_its_end(
                crew.Child.start(crew.command(words), (), environment, log),
                lambda child: self._children.update({child.pid: child}),
            )
        finally:
            os.close(log)
        if not await child.settled():
            said = self._log.read_text("utf-8", "replace").strip().splitlines()
            raise Told(f"a worker did not come up: {said[-1] if said else 'it said nothing'}")
        return child.pid

    def freeze(self, pid: int) -> None:
        self._children[pid].tell(signal.SIGSTOP)

    async def kill(self, pid: int) -> None:
        child = self._children.pop(pid)
        child.tell(signal.SIGKILL)
        await child.ended()

    async def close(self) -> None:
        """No worker is left."""
        children, self._children = list(self._children.values()), {}
        ends = [asyncio.create_task(child.ended()) for child in children]
        for child in children:
            child.tell(signal.SIGTERM)
            child.tell(signal.SIGCONT)
        if ends:
            await asyncio.wait(ends, timeout=LEAVE_WITHIN)
        for child, end in zip(children, ends, strict=True):
            if not end.done():
                child.tell(signal.SIGKILL)
        await asyncio.gather(*ends)


@asynccontextmanager
async def stage(scene: Scene, bound: socket.socket) -> AsyncIterator[Stage]:
    """Set up, and taken down whatever happens; what the block is cancelled in the midst of included."""
    app = tasks.app
    async with AsyncExitStack() as stack:
        stack.callback(bound.close)
        scene.doing = "starting a PostgreSQL of its own"
        home, dsn = await stack.enter_async_context(_database())
        app.move_to(dsn)
        stack.push_async_callback(app.close)
        scene.doing = "making the tables"
        await app.migrate()
        async with (await app.open()).database.connection() as connection:
            await connection.execute(tasks.TABLE)
        if _has_dashboard():
            local = await stack.enter_async_context(_dashboard(bound))
            scene.link_to = partial(local.link, f"http://{LOOPBACK}:{bound.getsockname()[1]}")
        made = Stage(dsn, home)
        stack.push_async_callback(made.close)
        scene.doing = "starting two workers"
        yield made


@asynccontextmanager
async def _database() -> AsyncIterator[tuple[Path, str]]:
    from rota.localpg import LocalPostgres

    # Short, because the path of a socket is bounded.
    home = Path(tempfile.mkdtemp(prefix="rota-demo-"))
    server = LocalPostgres(home / "pg")
    try:
        os.chmod(home, 0o711)  # as root, the server runs as another user and has to pass through
        yield home, await _in_thread(server.start)
    finally:
        await _in_thread(server.stop)
        await _in_thread(lambda: shutil.rmtree(home, ignore_errors=True))


def _has_dashboard() -> bool:
    return all(find_spec(name) for name in ("starlette", "uvicorn", "jinja2"))


@asynccontextmanager
async def _dashboard(bound: socket.socket) -> AsyncIterator[LocalAccess]:
    from rota.web.doorman import LocalAccess
    from rota.web.port import serving
    from rota.web.site import EVERYTHING, site

    local = LocalAccess()
    served = site(tasks.app, auth=local, bind=LOOPBACK, parts=EVERYTHING)
    async with serving(served, bound):
        try:
            yield local
        finally:
            tasks.app.readiness.drain()  # whoever follows a page live is let go


async def _in_thread(fn: Callable[[], T]) -> T:
    return await loops.to_its_end(asyncio.to_thread(fn))
