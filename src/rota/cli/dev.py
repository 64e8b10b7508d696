"""`rota dev`: a worker and the dashboard while you write, started again whenever a file is saved.

The app runs in processes of their own, so that what is imported is always what was saved last. This one
looks after them, and no more: it watches the files, starts and stops, and says what it does. A job that is
under way at a restart goes back to its queue and runs again with the new code.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from rota.cli import crew, loops
from rota.cli.changes import Changes, mistake
from rota.cli.crew import REST_WITHOUT_DATABASE, Child
from rota.cli.endings import FAILED, NO_DATABASE, OK, Told, leave
from rota.cli.lines import log_options
from rota.cli.load import check
from rota.cli.target import Target, with_database

if TYPE_CHECKING:
    from rich.console import Console

LOOPBACK = "127.0.0.1"
URL = "ROTA_DATABASE_URL"
LOCAL_KEY = "ROTA_LOCAL_KEY"
"""As in rota.web.doorman, which takes half a second to import."""

KILL_AFTER = 3.0
"""Seconds a process has beyond its grace."""

AGAIN_AFTER = 1.0
"""Seconds after which a worker that died by itself is replaced."""


@click.command()
@with_database
@click.argument("name", metavar="MODULE:APP", required=False)
@click.option(
    "-p",
    "--port",
    type=click.IntRange(1, 65535),
    default=8000,
    metavar="N",
    show_default=True,
    help="Where the dashboard is, on 127.0.0.1.",
)
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Watch the Python files there, too (again for more).",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="How long a job may go on at a restart, before it goes back and runs again.",
)
@click.option("--no-reload", is_flag=True, help="Do not watch any file.")
@log_options
def dev(
    target: Target,
    name: str | None,
    port: int,
    watched: tuple[Path, ...],
    grace: float,
    no_reload: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Work on MODULE:APP: a worker and the dashboard, both started again when a Python file is saved.

    Where no database is set it uses the embedded PostgreSQL. Ctrl-C ends everything.
    """
    target = target.over(name, None, None)
    if target.app is None:
        raise click.UsageError("say which app: rota dev MODULE:APP, or set ROTA_APP")
    check(target.app)
    _check_port(port)
    words = ["--log-level", log_level, "--log-format", log_format]
    for option, value in (("--dsn", target.dsn), ("--schema", target.schema)):
        words += [] if value is None else [option, value]
    roots = [] if no_reload else [Path.cwd(), *_home_of(target.app), *watched]
    session = Session(
        target.app,
        crew.command(["worker", target.app, "--grace", str(grace), *words]),
        crew.command(["dashboard", target.app, "-p", str(port), "--auth", "local", *words]),
        Changes(roots),
        port,
        grace,
    )
    leave(asyncio.run(session.run(_environment(target))))


def _check_port(port: int) -> None:
    import socket

    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError as error:
            raise Told(
                f"cannot listen at {LOOPBACK} port {port}: {error.strerror}; say another with --port",
                FAILED,
            ) from None


def _environment(target: Target) -> dict[str, str]:
    """Ours, and the embedded database where nothing else is named: an app that names one has that."""
    from rota.errors import SettingsError
    from rota.model import settings

    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if target.dsn is None:
        try:
            settings.database_url()
        except SettingsError as error:
            if str(error) != settings.NO_DATABASE:
                raise
            environment[URL] = "local"
    return environment


def _home_of(name: str) -> list[Path]:
    """Where the app's own code lies, if that is not among the installed packages."""
    with suppress(ImportError, ValueError):
        found = find_spec(name.partition(":")[0].partition(".")[0])
        if found is not None and found.origin is not None and found.has_location:
            home = Path(found.origin).resolve().parent
            installed = Path(sysconfig.get_path("purelib")).resolve()
            return [] if installed in (home, *home.parents) else [home]
    return []


class Session:
    def __init__(
        self,
        app: str,
        worker: list[str],
        dashboard: list[str],
        changes: Changes,
        port: int,
        grace: float,
    ) -> None:
        self._app = app
        self._commands = {"worker": worker, "dashboard": dashboard}
        self._changes = changes
        self._key = secrets.token_urlsafe(16)
        self._link = f"http://{LOOPBACK}:{port}/?key={self._key}"
        self._grace = grace
        self._children: dict[str, Child] = {}
        self._ends: dict[str, asyncio.Task[int]] = {}
        self._stopping = asyncio.Event()
        self._console = _console()
        self._environment: Mapping[str, str] = {}

    async def run(self, environment: Mapping[str, str]) -> int:
        """Until told to stop. Answers an exit code."""
        self._environment = environment
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stopping.set)
        self._greet()
        stopping = asyncio.create_task(self._stopping.wait())
        changing = asyncio.create_task(self._changes.next())
        starting: asyncio.Task[int] | None = asyncio.create_task(self._start(first=True))
        first = True
        try:
            while not self._stopping.is_set():
                ends = list(self._ends.values())
                waits = {stopping, changing, *([starting] if starting else ends)}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if changing.done():
                    changed = changing.result()
                    changing = asyncio.create_task(self._changes.next())
                    if self._is_sound(changed):
                        await _abandon(starting)
                        await self._stop("worker")
                        starting = asyncio.create_task(self._start())
                elif starting is not None and starting.done():
                    code, starting = starting.result(), None
                    if first and code != OK and not self._is_mendable(code):
                        return code
                    first = False
                elif starting is None and any(end.done() for end in ends):
                    starting = asyncio.create_task(self._replace())
            self._say("ends")
            return OK
        finally:
            stopping.cancel()
            changing.cancel()
            await _abandon(starting)
            await asyncio.gather(self._stop("worker"), self._stop("dashboard"))

    # What is said

    def _greet(self) -> None:
        self._say(f"{self._app}, with the dashboard at {self._link}", link=self._link)
        if self._environment.get(URL) != os.environ.get(URL):
            self._say(
                "no database is set: unless the app names one, it uses the embedded PostgreSQL",
                "dim",
            )
        if self._changes.roots:
            where = " and ".join(_short(root) for root in self._changes.roots)
            many = f"{self._changes.files} Python file{'' if self._changes.files == 1 else 's'}"
            self._say(f"watches {many} in {where}; Ctrl-C ends it", "dim")
        else:
            self._say("Ctrl-C ends it", "dim")

    def _say(self, words: str, style: str = "", link: str = "") -> None:
        from rich.text import Text

        line = Text("dev ", style="bold cyan")
        line.append(words, style)
        if link:
            line.highlight_words([link], f"bold underline link {link}")
        self._console.print(line, soft_wrap=True)

    def _is_sound(self, changed: Iterable[Path]) -> bool:
        """Whether Python can read what was saved; else what runs goes on as it was."""
        from rich.text import Text

        found = mistake(changed)
        if found is None:
            self._say(f"{_names(changed)} changed: starts again")
            return True
        self._console.print(Text(found, style="red"), soft_wrap=True)
        goes_on = "what runs goes on as it was; " if self._children else ""
        self._say(f"this cannot be read: {goes_on}save it again once it is mended", "yellow")
        return False

    def _say_unborn(self, what: str, code: int) -> None:
        then = ": save a file, and it is tried again" if self._is_mendable(code) else ""
        self._say(f"{what} did not start{then}", "yellow")

    # What is run

    def _is_mendable(self, code: int) -> bool:
        """Whether saving a file may help where a start has ended so."""
        return code != NO_DATABASE and bool(self._changes.roots)

    async def _start(self, *, first: bool = False) -> int:
        """A worker, and then the dashboard with the same code. Answers how the worker has ended that did
        not come up, or 0. The first finds the database there, or nobody waits for it."""
        begin = self._begin if first else self._insist
        if (code := await begin("worker")) != OK:
            self._say_unborn(self._app, code)
            return code
        if all(find_spec(each) for each in ("starlette", "uvicorn", "jinja2")):
            await self._stop("dashboard")
            await self._insist("dashboard")
        else:
            self._say("there is no dashboard without pip install 'rota[web]'", "yellow")
        return OK

    async def _begin(self, what: str) -> int:
        environment = dict(self._environment)
        if what == "dashboard":
            environment[LOCAL_KEY] = self._key  # the same after each restart
        starting = Child.start(self._commands[what], (), environment)
        child = await loops.to_its_end(starting, lambda child: self._children.update({what: child}))
        up = await child.settled()
        self._ends[what] = end = asyncio.create_task(child.ended())
        if up:
            return OK
        code = await end
        self._forget(what)
        return code or FAILED

    async def _insist(self, what: str) -> int:
        """The same, again and again while the database is away."""
        while (code := await self._begin(what)) == NO_DATABASE:
            self._say(f"the {what} is tried again in {REST_WITHOUT_DATABASE:g} s", "yellow")
            await asyncio.sleep(REST_WITHOUT_DATABASE)
        return code

    async def _replace(self) -> int:
        """One that has ended by itself."""
        for what, end in list(self._ends.items()):
            if end.done():
                self._forget(what)
                self._say(f"the {what} {crew.how(end.result())}: another starts", "yellow")
                await asyncio.sleep(AGAIN_AFTER)
                if (code := await self._insist(what)) != OK:
                    self._say_unborn(f"the {what}", code)
        return OK

    def _forget(self, what: str) -> None:
        self._children.pop(what, None)
        self._ends.pop(what, None)

    async def _stop(self, what: str) -> None:
        child = self._children.get(what)
        if child is None:
            return
        end = self._ends.get(what) or asyncio.create_task(child.ended())
        child.tell(signal.SIGTERM)
        await asyncio.wait([end], timeout=self._grace + KILL_AFTER)
        if not end.done():
            child.tell(signal.SIGKILL)
            await end
        self._forget(what)


async def _abandon(starting: asyncio.Task[int] | None) -> None:
    """Give up a start: whatever of it is there is known, and stopped by whoever comes next."""
    if starting is not None:
        starting.cancel()
        await asyncio.wait([starting])


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def _short(path: Path) -> str:
    with suppress(ValueError):
        inside = path.relative_to(Path.home())
        return "~" if inside == Path() else f"~/{inside}"
    return str(path)


def _names(paths: Iterable[Path]) -> str:
    names = sorted(path.name for path in paths)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
