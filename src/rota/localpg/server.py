"""LocalPostgres: a PostgreSQL for as long as somebody uses it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from rota.errors import LocalPostgresError
from rota.localpg import account, cluster, database, locks, postmaster, profiles
from rota.localpg.binaries import Binaries, find_binaries
from rota.localpg.launch import START_TIMEOUT, WATCHER_PATIENCE, adopt, launch
from rota.localpg.locks import Share
from rota.localpg.places import Place, default_directory, make_parents, make_private
from rota.localpg.postmaster import Postmaster
from rota.localpg.profiles import Profile
from rota.localpg.reach import reachable

log = logging.getLogger(__name__)

# Longer than anything done inside: a start, after a stop, after an initdb.
GATE_PATIENCE = START_TIMEOUT + 120.0


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is so at this moment. `sharers` are process numbers, or None where the system does not
    tell; `port` is the TCP port, or None; `kept` means that it runs until `rota pg stop`."""

    directory: Path
    running: bool
    version: str
    pid: int | None = None
    dsn: str | None = None
    port: int | None = None
    sharers: tuple[int, ...] | None = ()
    kept: bool = False


class LocalPostgres:
    """The server of one directory. `start` takes a share in it, `stop` gives it back; the first
    share starts it, the last one stops it.

    `settings` and `profile` shape the server when this call starts it; a server that is running
    already stays as it is. A share belongs to the process that took it: a forked child has none.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        profile: Profile = "dev",
        settings: Mapping[str, str] | None = None,
        database: str = "rota",
        binaries: Binaries | None = None,
        listen: bool = False,
    ) -> None:
        if profile not in profiles.PROFILES:
            raise LocalPostgresError(f"profile is {profile!r}; say dev or test")
        self._directory = directory
        self._profile = profile
        self._wishes = profiles.wishes(profile, settings or {})
        self._database = database
        self._binaries = binaries
        self._listen = listen
        self._place: Place | None = None
        self._share: Share | None = None
        self._one_at_a_time = threading.RLock()

    # -- using it

    def start(self) -> str:
        """Take a share; the server runs and the database exists from here on. Its DSN."""
        with self._one_at_a_time:
            if self._holds() and (running := postmaster.read(self.place.data)) and running.ready:
                return database.socket_dsn(running, self._database)
            with self._gate() as gate:
                share = self._share if self._share and self._share.held else Share(self.place)
                self._share = share
                try:
                    server = self._running(gate) or self._launched(gate)
                except BaseException:
                    share.close()
                    raise
            try:
                database.ensure(server, self.place, self._database)
            except BaseException:
                self.stop()
                raise
            return database.socket_dsn(server, self._database)

    def stop(self) -> None:
        """Give the share back. Whoever gives back the last one stops the server."""
        with self._one_at_a_time:
            share, self._share = self._share, None
            if share is None or not share.held:
                return
            with self._gate():
                try:
                    if share.leave():
                        self._stop_unless_kept()
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
        """A URL for the socket, which psycopg, asyncpg and SQLAlchemy understand."""
        return database.socket_dsn(self._server(), self._database)

    @property
    def tcp_dsn(self) -> str:
        """The same by TCP, with a password, when the server was started with `listen`."""
        server = self._server()
        if not server.tcp:
            raise LocalPostgresError(
                f"the PostgreSQL in {self.place.data} has no TCP port: start it with listen=True"
            )
        return database.tcp_dsn(server, self.place, self._database)

    @property
    def place(self) -> Place:
        """Where its files are."""
        if self._place is None:
            named = self._directory
            data = Path(named).expanduser().resolve() if named else self._default()
            self._place = Place(data)
        return self._place

    def status(self) -> ServerStatus:
        data = self.place.data
        server = postmaster.read(data)
        version = self._version()
        if server is None or not server.ready:
            return ServerStatus(data, False, version)
        return ServerStatus(
            data,
            True,
            version,
            pid=server.pid,
            dsn=database.socket_dsn(server, self._database),
            port=server.port if server.tcp else None,
            sharers=locks.holders(self.place),
            kept=self._is_kept(server),
        )

    # -- keeping it

    def keep(self) -> str:
        """Start it and let it run until `release`, whoever comes and goes. Its DSN."""
        with self._one_at_a_time:
            had_share = self._holds()
            dsn = self.start()
            # The mark names the process: it ends with this server and means nothing to the next.
            self.place.kept.write_text(f"{self._server().pid}\n")
            if not had_share:
                self.stop()
            return dsn

    def release(self, *, now: bool = False) -> bool:
        """Undo `keep`: the server stops with its last user, or `now`. Has it stopped?"""
        with self._one_at_a_time, self._gate():
            self.place.kept.unlink(missing_ok=True)
            if now or locks.is_free(self.place.shared):
                self._stop_unless_kept()
                return True
            return False

    def bequeath(self) -> None:
        """Let the program that this process is about to exec hold the share while it runs."""
        if self._share:
            self._share.bequeath()

    def program(self, name: str) -> Path | None:
        """A program that comes with the server, such as psql, if it does."""
        path = self._suitable_binaries().program(name)
        return path if path.is_file() else None

    # -- breaking it

    def kill(self) -> None:
        """SIGKILL the postmaster, as a crash would. Its children notice and follow."""
        self._server().kill()

    def restart(self, *, immediately: bool = False) -> str:
        """Stop the server, if it is still there, and start it again. Needs a share. Its DSN."""
        with self._one_at_a_time:
            if not self._holds():
                raise LocalPostgresError("restart needs a share in the server: call start first")
            with self._gate() as gate:
                if server := postmaster.read(self.place.data):
                    self._refuse_a_stranger(server)
                    server.stop(immediately=immediately)
                server = self._launched(gate)
            database.ensure(server, self.place, self._database)
            return database.socket_dsn(server, self._database)

    # -- inside the gate

    def _running(self, gate: int) -> Postmaster | None:
        """The server, if there is one; one that is starting or stopping is waited for."""
        server = postmaster.settled(self.place.data, START_TIMEOUT)
        if server is None:
            return None
        self._refuse_a_stranger(server)
        if self._listen and not server.tcp:
            raise LocalPostgresError(
                f"the PostgreSQL in {self.place.data} is running without a TCP port: "
                "have the others stop, or ask for no port"
            )
        others = [wish for wish in self._wishes if f'"{wish}"' not in server.options]
        if others:
            log.warning(
                "the PostgreSQL in %s was started by another app with other settings; "
                "these have no effect until it is restarted: %s",
                self.place.data,
                ", ".join(others),
            )
        if locks.is_free(self.place.watcher):
            adopt(self.place, server, account.choose(self.place.data), gate)
        return server

    def _launched(self, gate: int) -> Postmaster:
        user = account.choose(self.place.data)
        binaries = reachable(self._suitable_binaries(), user)
        sync = self._profile != "test"
        cluster.initialise(self.place, binaries, user, gate, sync=sync)
        launch(self.place, binaries, user, self._wishes, gate, listen=self._listen)
        return self._server()

    def _stop_unless_kept(self) -> None:
        server = postmaster.read(self.place.data)
        if server and not self._is_kept(server):
            self._refuse_a_stranger(server)
            server.stop()
            # Its watcher has nothing left to do. Waiting for it makes "stopped" mean that no
            # process is left.
            locks.is_free(self.place.watcher, WATCHER_PATIENCE)

    def _refuse_a_stranger(self, server: Postmaster) -> None:
        if not server.ours:
            raise LocalPostgresError(
                f"a PostgreSQL that Rota did not start (process {server.pid}) serves "
                f"{self.place.data}: set ROTA_DATABASE_URL to use it, or choose another directory"
            )

    # -- finding things out

    @contextmanager
    def _gate(self) -> Iterator[int]:
        if sys.platform == "win32":
            account.choose(self.place.data)  # says that it cannot be
        try:
            if not self.place.run.is_dir():
                make_parents(self.place.run, account.choose(self.place.data))
            make_private(self.place.run, os.geteuid())
        except OSError as error:
            raise LocalPostgresError(
                f"{error.filename} cannot be made ({error.strerror}): "
                "choose another directory with ROTA_LOCAL_DIR"
            ) from error
        with locks.gate(self.place, GATE_PATIENCE) as gate:
            yield gate

    def _holds(self) -> bool:
        return self._share is not None and self._share.held

    def _server(self) -> Postmaster:
        server = postmaster.read(self.place.data)
        if server is None:
            raise LocalPostgresError(
                f"no PostgreSQL is running in {self.place.data}: start it first (rota pg start)"
            )
        return server

    def _is_kept(self, server: Postmaster) -> bool:
        try:
            return self.place.kept.read_text().strip() == str(server.pid)
        except OSError:
            return False

    def _default(self) -> Path:
        return default_directory(self._binaries.major if self._binaries else None)

    def _version(self) -> str:
        try:
            return self._suitable_binaries().version
        except LocalPostgresError:
            made_by = cluster.major(self.place.data)
            if made_by is None:
                raise
            return str(made_by)  # the programs are gone; what they made is still there

    def _suitable_binaries(self) -> Binaries:
        made_by = cluster.major(self.place.data)
        given = self._binaries
        if given is None:
            return find_binaries(made_by)
        if made_by not in (None, given.major):
            raise LocalPostgresError(
                f"{self.place.data} was made by PostgreSQL {made_by} and cannot be opened "
                f"with {given.version} from {given.directory}: leave the choice of binaries to Rota"
            )
        return given
