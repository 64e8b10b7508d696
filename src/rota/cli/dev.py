"""`rota dev`: a worker and the dashboard for development, restarted whenever a file is saved.

The app runs in child processes, so that the imported code is always the saved code. This process only
watches the files, starts and stops the children, and prints what it does. A job that runs during a
restart returns to its queue and runs again with the new code.
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

from rota.app.shutdown_signals import TERMINAL_SIGNALS, handle_signals
from rota.cli import event_loop, supervisor
from rota.cli.app_loader import check_app_name
from rota.cli.exit_codes import FAILED, NO_DATABASE, OK, exit_with
from rota.cli.file_watcher import FileWatcher, find_syntax_error
from rota.cli.options.logging import log_options
from rota.cli.options.web import DASHBOARD_PORT, LOOPBACK, has_dashboard, listen, port_option
from rota.cli.supervisor import NO_DATABASE_DELAY_SECONDS, SupervisedProcess
from rota.cli.target import Target, with_database
from rota.model.text import counted

if TYPE_CHECKING:
    from rich.console import Console

DATABASE_URL_VARIABLE = "ROTA_DATABASE_URL"
LOCAL_KEY_VARIABLE = "ROTA_LOCAL_KEY"
"""The same name as in rota.web.tokens_auth, which takes half a second to import."""

KILL_AFTER_SECONDS = 3.0
"""Time that a process gets after its drain timeout, before it is killed."""

RESTART_DELAY_SECONDS = 1.0
"""Pause before a process that ended unexpectedly is replaced."""


@click.command()
@with_database
@click.argument("name", metavar="MODULE:APP", required=False)
@port_option(DASHBOARD_PORT, "Port of the dashboard on 127.0.0.1.", minimum=1)
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Also watch the Python files in this directory; can be repeated.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(0),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="Seconds a running job gets to finish at a restart; then it returns to its queue.",
)
@click.option("--no-reload", is_flag=True, help="Do not watch any file.")
@log_options
def dev(
    target: Target,
    name: str | None,
    port: int,
    watched: tuple[Path, ...],
    drain_timeout: float,
    no_reload: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run MODULE:APP for development: a worker and the dashboard, restarted when a Python file is saved.

    If no database is set, it uses the embedded PostgreSQL. Ctrl-C ends everything.
    """
    target = target.with_overrides(name, None, None)
    if target.app is None:
        raise click.UsageError("no app is given: run `rota dev MODULE:APP`, or set ROTA_APP")
    check_app_name(target.app)
    listen(LOOPBACK, port, remedy="--port").close()  # fails before anything is started
    arguments = supervisor.child_arguments(
        target, without=["port", "watched", "drain_timeout", "no_reload"]
    )
    roots = [] if no_reload else [Path.cwd(), *_source_directories(target.app), *watched]
    session = DevSession(
        target.app,
        supervisor.rota_command(
            ["worker", target.app, "--drain-timeout", str(drain_timeout), *arguments]
        ),
        supervisor.rota_command(
            ["dashboard", target.app, "-p", str(port), "--auth", "local", *arguments]
        ),
        FileWatcher(roots),
        port,
        drain_timeout,
    )
    exit_with(asyncio.run(session.run(_environment(target))))


def _environment(target: Target) -> dict[str, str]:
    """Return this process's environment, with the embedded database if no other is set.

    An app that names its own database uses that.
    """
    from rota.errors import SettingsError
    from rota.model import settings

    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if target.dsn is None:
        try:
            settings.database_url()
        except SettingsError as error:
            if str(error) != settings.NO_DATABASE_MESSAGE:
                raise
            environment[DATABASE_URL_VARIABLE] = "local"
    return environment


def _source_directories(name: str) -> list[Path]:
    """Return the directory of the app's code, unless it is an installed package."""
    with suppress(ImportError, ValueError):
        found = find_spec(name.partition(":")[0].partition(".")[0])
        if found is not None and found.origin is not None and found.has_location:
            directory = Path(found.origin).resolve().parent
            installed = Path(sysconfig.get_path("purelib")).resolve()
            return [] if installed in (directory, *directory.parents) else [directory]
    return []


class DevSession:
    def __init__(
        self,
        app: str,
        worker: list[str],
        dashboard: list[str],
        watcher: FileWatcher,
        port: int,
        drain_timeout: float,
    ) -> None:
        self._app = app
        self._commands = {"worker": worker, "dashboard": dashboard}
        self._watcher = watcher
        self._key = secrets.token_urlsafe(16)
        self._link = f"http://{LOOPBACK}:{port}/?key={self._key}"
        self._drain_timeout = drain_timeout
        self._children: dict[str, SupervisedProcess] = {}
        self._exits: dict[str, asyncio.Task[int]] = {}
        self._stopping = asyncio.Event()
        self._console = _console()
        self._environment: Mapping[str, str] = {}

    async def run(self, environment: Mapping[str, str]) -> int:
        """Run until a signal arrives. Return the exit code."""
        self._environment = environment
        with handle_signals(lambda number: self._stopping.set(), TERMINAL_SIGNALS):
            return await self._run()

    async def _run(self) -> int:
        self._print_banner()
        stopping = asyncio.create_task(self._stopping.wait())
        changing = asyncio.create_task(self._watcher.wait_for_changes())
        starting: asyncio.Task[int] | None = asyncio.create_task(self._start(first=True))
        first = True
        try:
            while not self._stopping.is_set():
                exits = list(self._exits.values())
                awaited = {stopping, changing, *([starting] if starting else exits)}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                if changing.done():
                    changed = changing.result()
                    changing = asyncio.create_task(self._watcher.wait_for_changes())
                    if self._compiles(changed):
                        await _cancel_start(starting)
                        await self._stop("worker")
                        starting = asyncio.create_task(self._start())
                elif starting is not None and starting.done():
                    code, starting = starting.result(), None
                    if first and code != OK and not self._waits_for_change(code):
                        return code
                    first = False
                elif starting is None and any(exit_task.done() for exit_task in exits):
                    starting = asyncio.create_task(self._restart_ended())
            self._print("ends")
            return OK
        finally:
            stopping.cancel()
            changing.cancel()
            await _cancel_start(starting)
            await asyncio.gather(self._stop("worker"), self._stop("dashboard"))

    # Output

    def _print_banner(self) -> None:
        self._print(f"{self._app}, with the dashboard at {self._link}", link=self._link)
        if self._environment.get(DATABASE_URL_VARIABLE) != os.environ.get(DATABASE_URL_VARIABLE):
            self._print(
                "no database is set: unless the app names one, it uses the embedded PostgreSQL",
                "dim",
            )
        if self._watcher.roots:
            directories = " and ".join(_format_path(root) for root in self._watcher.roots)
            files = counted(self._watcher.file_count, "Python file")
            self._print(f"watches {files} in {directories}; Ctrl-C ends it", "dim")
        else:
            self._print("Ctrl-C ends it", "dim")

    def _print(self, text: str, style: str = "", link: str = "") -> None:
        from rich.text import Text

        line = Text("dev ", style="bold cyan")
        line.append(text, style)
        if link:
            line.highlight_words([link], f"bold underline link {link}")
        self._console.print(line, soft_wrap=True)

    def _compiles(self, changed: Iterable[Path]) -> bool:
        """True if the saved files compile. If not, the current processes keep running."""
        from rich.text import Text

        found = find_syntax_error(changed)
        if found is None:
            self._print(f"{_format_names(changed)} changed: starts again")
            return True
        self._console.print(Text(found, style="red"), soft_wrap=True)
        consequence = "the running processes continue unchanged; " if self._children else ""
        self._print(f"syntax error: {consequence}fix the file and save it", "yellow")
        return False

    def _print_start_failed(self, name: str, code: int) -> None:
        hint = ": save a file to retry" if self._waits_for_change(code) else ""
        self._print(f"{name} did not start{hint}", "yellow")

    # Processes

    def _waits_for_change(self, code: int) -> bool:
        """True if saving a file may fix a start that ended with this code."""
        return code != NO_DATABASE and bool(self._watcher.roots)

    async def _start(self, *, first: bool = False) -> int:
        """Start a worker, then the dashboard with the same code.

        Return the exit code of a worker that did not start, or 0. The first start does not wait for the
        database.
        """
        start = self._start_process if first else self._start_with_retry
        if (code := await start("worker")) != OK:
            self._print_start_failed(self._app, code)
            return code
        if has_dashboard():
            await self._stop("dashboard")
            await self._start_with_retry("dashboard")
        else:
            self._print(
                "the dashboard is not installed; install it with pip install 'pgrota[web]'",
                "yellow",
            )
        return OK

    async def _start_process(self, name: str) -> int:
        environment = dict(self._environment)
        if name == "dashboard":
            environment[LOCAL_KEY_VARIABLE] = self._key  # the same after each restart
        starting = SupervisedProcess.start(self._commands[name], (), environment)
        child = await event_loop.finish_even_if_cancelled(
            starting, lambda child: self._children.update({name: child})
        )
        is_up = await child.wait_until_up()
        self._exits[name] = exit_task = asyncio.create_task(child.wait_exit())
        if is_up:
            return OK
        code = await exit_task
        self._remove(name)
        return code or FAILED

    async def _start_with_retry(self, name: str) -> int:
        """Start a process, and retry while the database is unavailable."""
        while (code := await self._start_process(name)) == NO_DATABASE:
            self._print(f"retrying the {name} in {NO_DATABASE_DELAY_SECONDS:g} s", "yellow")
            await asyncio.sleep(NO_DATABASE_DELAY_SECONDS)
        return code

    async def _restart_ended(self) -> int:
        """Restart the processes that ended unexpectedly."""
        for name, exit_task in list(self._exits.items()):
            if exit_task.done():
                self._remove(name)
                self._print(
                    f"the {name} {supervisor.describe_exit(exit_task.result())}: another starts",
                    "yellow",
                )
                await asyncio.sleep(RESTART_DELAY_SECONDS)
                if (code := await self._start_with_retry(name)) != OK:
                    self._print_start_failed(f"the {name}", code)
        return OK

    def _remove(self, name: str) -> None:
        self._children.pop(name, None)
        self._exits.pop(name, None)

    async def _stop(self, name: str) -> None:
        child = self._children.get(name)
        if child is None:
            return
        exit_task = self._exits.get(name) or asyncio.create_task(child.wait_exit())
        child.send_signal(signal.SIGTERM)
        await asyncio.wait([exit_task], timeout=self._drain_timeout + KILL_AFTER_SECONDS)
        if not exit_task.done():
            child.send_signal(signal.SIGKILL)
            await exit_task
        self._remove(name)


async def _cancel_start(starting: asyncio.Task[int] | None) -> None:
    """Cancel a start. Its processes are registered already, and the next step stops them."""
    if starting is not None:
        starting.cancel()
        await asyncio.wait([starting])


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False, markup=False)


def _format_path(path: Path) -> str:
    with suppress(ValueError):
        relative = path.relative_to(Path.home())
        return "~" if relative == Path() else f"~/{relative}"
    return str(path)


def _format_names(paths: Iterable[Path]) -> str:
    names = sorted(path.name for path in paths)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
