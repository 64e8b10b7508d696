"""LocalPostgres: a PostgreSQL server that runs while it is in use."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.errors import LocalPostgresError
from rota.localpg import account, data_directory, database, locks, postmaster, profiles
from rota.localpg.binaries import Binaries, find_binaries
from rota.localpg.launch import (
    START_TIMEOUT_SECONDS,
    WATCHER_TIMEOUT_SECONDS,
    attach_watcher,
    launch,
)
from rota.localpg.locks import ServerShare
from rota.localpg.paths import ServerPaths, default_directory, make_parents, make_private
from rota.localpg.postmaster import Postmaster
from rota.localpg.profiles import Profile
from rota.localpg.projects import ProjectDatabase, default_database
from rota.localpg.runnable_binaries import make_runnable

log = logging.getLogger(__name__)

# Longer than any operation that holds the lock: a stop, then an initdb, then a start.
CONTROL_LOCK_TIMEOUT_SECONDS = START_TIMEOUT_SECONDS + 120.0


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """State of a server.

    `user_pids` are the processes that use it, or None if the system does not provide them. `port` is the
    TCP port, or None. `detached` means that the server runs until `rota pg stop`.
    """

    directory: Path
    running: bool
    version: str
    pid: int | None = None
    dsn: str | None = None
    port: int | None = None
    user_pids: tuple[int, ...] | None = ()
    detached: bool = False


class LocalPostgres:
    """The server of one directory.

    `start` acquires a share in it, `stop` releases the share. The first share starts the server, releasing
    the last one stops it. `settings` and `profile` apply if `start` of this object starts the server; a
    running server is not changed. The default of `database` is the database of the current project. A share
    belongs to the process that acquired it: a forked child has none.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        profile: Profile = "dev",
        settings: Mapping[str, str] | None = None,
        database: str | None = None,
        binaries: Binaries | None = None,
        listen: bool = False,
    ) -> None:
        if profile not in profiles.PROFILES:
            raise LocalPostgresError(f"profile is {profile!r}; say dev or test")
        self._directory = directory
        self._profile = profile
        self._requested_settings = profiles.requested_settings(profile, settings or {})
        self._database = database
        self._binaries = binaries
        self._listen = listen
        self._paths: ServerPaths | None = None
        self._share: ServerShare | None = None
        self._lock = threading.RLock()

    @cached_property
    def project(self) -> ProjectDatabase:
        """The database that this object opens."""
        if self._database is not None:
            return ProjectDatabase(self._database, None)
        return default_database(self._directory)

    # -- use

    def start(self) -> str:
        """Acquire a share, start the server and create the database if necessary, and return the DSN."""
        with self._lock:
            if (
                self._has_share()
                and (running := postmaster.read(self.paths.data))
                and running.is_ready
            ):
                return database.socket_dsn(running, self.project.name)
            with self._control_lock() as control_fd:
                share = self._share if self._share and self._share.held else ServerShare(self.paths)
                self._share = share
                try:
                    server = self._find_running(control_fd) or self._launch(control_fd)
                except BaseException:
                    share.close()
                    raise
            try:
                database.ensure_database(server, self.paths, self.project)
            except BaseException:
                self.stop()
                raise
            return database.socket_dsn(server, self.project.name)

    def stop(self) -> None:
        """Release the share. Releasing the last share stops the server."""
        with self._lock:
            share, self._share = self._share, None
            if share is None or not share.held:
                return
            with self._control_lock():
                try:
                    if share.release():
                        self._stop_unless_detached()
                finally:
                    share.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def dsn(self) -> str:
        """URL of the socket, for psycopg, asyncpg and SQLAlchemy."""
        return database.socket_dsn(self._require_server(), self.project.name)

    @property
    def tcp_dsn(self) -> str:
        """URL of the TCP port, with a password, if the server was started with `listen`."""
        server = self._require_server()
        if not server.has_tcp:
            raise LocalPostgresError(
                f"the PostgreSQL in {self.paths.data} has no TCP port: start it with listen=True"
            )
        return database.tcp_dsn(server, self.paths, self.project.name)

    @property
    def paths(self) -> ServerPaths:
        """Locations of the server's files."""
        if self._paths is None:
            if self._directory:
                data = Path(self._directory).expanduser().resolve()
            else:
                data = default_directory(self._binaries.major if self._binaries else None)
            self._paths = ServerPaths(data)
        return self._paths

    def status(self) -> ServerStatus:
        data = self.paths.data
        server = postmaster.read(data)
        version = self._version()
        if server is None or not server.is_ready:
            return ServerStatus(data, False, version)
        return ServerStatus(
            data,
            True,
            version,
            pid=server.pid,
            dsn=database.socket_dsn(server, self.project.name),
            port=server.port if server.has_tcp else None,
            user_pids=locks.holders(self.paths),
            detached=self._is_detached(server),
        )

    # -- detached servers

    def start_detached(self) -> str:
        """Start the server, let it run until `stop_detached` whether or not apps use it, and return the
        DSN.
        """
        with self._lock:
            had_share = self._has_share()
            dsn = self.start()
            # The mark contains the process id, so it is not valid for a later server.
            self.paths.detached_mark.write_text(f"{self._require_server().pid}\n")
            if not had_share:
                self.stop()
            return dsn

    def stop_detached(self, *, now: bool = False) -> bool:
        """Undo `start_detached`: stop the server with its last user, or at once with `now`.

        Return True if it has stopped.
        """
        with self._lock, self._control_lock():
            self.paths.detached_mark.unlink(missing_ok=True)
            if now or locks.is_free(self.paths.users_lock):
                self._stop_unless_detached()
                return True
            return False

    def make_share_inheritable(self) -> None:
        """Keep the share across `exec`: the new program holds it until it ends."""
        if self._share:
            self._share.make_inheritable()

    def find_program(self, name: str) -> Path | None:
        """Return a program of the server's release, such as psql, or None if it is not included."""
        path = self._suitable_binaries().program(name)
        return path if path.is_file() else None

    # -- failures, for tests

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL, as in a crash. Its child processes then end."""
        self._require_server().kill()

    def restart(self, *, immediately: bool = False) -> str:
        """Stop the server if it is running, start it again and return its DSN. Needs a share."""
        with self._lock:
            if not self._has_share():
                raise LocalPostgresError("restart needs a share in the server: call start first")
            with self._control_lock() as control_fd:
                if server := postmaster.read(self.paths.data):
                    _require_own_server(server, self.paths)
                    server.stop(immediately=immediately)
                server = self._launch(control_fd)
            database.ensure_database(server, self.paths, self.project)
            return database.socket_dsn(server, self.project.name)

    # -- called with the control lock held

    def _find_running(self, control_fd: int) -> Postmaster | None:
        """Return the running server or None, after waiting for one that is starting or stopping."""
        server = postmaster.wait_ready_or_gone(self.paths.data, START_TIMEOUT_SECONDS)
        if server is None:
            return None
        _require_own_server(server, self.paths)
        if self._listen and not server.has_tcp:
            raise LocalPostgresError(
                f"the PostgreSQL in {self.paths.data} is running without a TCP port: "
                "stop the other apps that use it, or start without listen=True"
            )
        ignored = [
            setting for setting in self._requested_settings if f'"{setting}"' not in server.options
        ]
        if ignored:
            log.warning(
                "the PostgreSQL in %s was started by another app with other settings; "
                "these have no effect until it is restarted: %s",
                self.paths.data,
                ", ".join(ignored),
            )
        if locks.is_free(self.paths.watcher_lock):
            attach_watcher(self.paths, server, account.choose(self.paths.data), control_fd)
        return server

    def _launch(self, control_fd: int) -> Postmaster:
        user = account.choose(self.paths.data)
        binaries = make_runnable(self._suitable_binaries(), user)
        sync = self._profile != "test"
        data_directory.initialise(self.paths, binaries, user, control_fd, sync=sync)
        launch(
            self.paths, binaries, user, self._requested_settings, control_fd, listen=self._listen
        )
        return self._require_server()

    def _stop_unless_detached(self) -> None:
        server = postmaster.read(self.paths.data)
        if server and not self._is_detached(server):
            _require_own_server(server, self.paths)
            server.stop()
            # The watcher ends with the server. Wait for it, so that no process is left when this returns.
            locks.is_free(self.paths.watcher_lock, WATCHER_TIMEOUT_SECONDS)

    # -- helpers

    @contextmanager
    def _control_lock(self) -> Iterator[int]:
        if sys.platform == "win32":
            account.choose(self.paths.data)  # raises LocalPostgresError
        try:
            if not self.paths.run_directory.is_dir():
                make_parents(self.paths.run_directory, account.choose(self.paths.data))
            make_private(self.paths.run_directory, os.geteuid())
        except OSError as error:
            raise LocalPostgresError(
                f"{error.filename} cannot be made ({error.strerror}): "
                "choose another directory with ROTA_LOCAL_DIR"
            ) from error
        with locks.control_lock(self.paths, CONTROL_LOCK_TIMEOUT_SECONDS) as control_fd:
            yield control_fd

    def _has_share(self) -> bool:
        return self._share is not None and self._share.held

    def _require_server(self) -> Postmaster:
        server = postmaster.read(self.paths.data)
        if server is None:
            raise LocalPostgresError(
                f"no PostgreSQL is running in {self.paths.data}: start it first (rota pg start)"
            )
        return server

    def _is_detached(self, server: Postmaster) -> bool:
        try:
            return self.paths.detached_mark.read_text().strip() == str(server.pid)
        except OSError:
            return False

    def _version(self) -> str:
        try:
            return self._suitable_binaries().version
        except LocalPostgresError:
            major = data_directory.read_major(self.paths.data)
            if major is None:
                raise
            return str(major)  # the programs are gone, the data is still there

    def _suitable_binaries(self) -> Binaries:
        major = data_directory.read_major(self.paths.data)
        configured = self._binaries
        if configured is None:
            return find_binaries(major)
        if major not in (None, configured.major):
            raise LocalPostgresError(
                f"{self.paths.data} was made by PostgreSQL {major} and cannot be opened "
                f"with {configured.version} from {configured.directory}: leave the choice of "
                "binaries to Rota"
            )
        return configured


def _require_own_server(server: Postmaster, paths: ServerPaths) -> None:
    if not server.started_by_rota:
        raise LocalPostgresError(
            f"a PostgreSQL that Rota did not start (process {server.pid}) serves "
            f"{paths.data}: set ROTA_DATABASE_URL to use it, or choose another directory"
        )
