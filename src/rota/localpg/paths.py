"""Locations of the files of a server.

    …/rota/pg18            data directory; its content belongs to PostgreSQL
    …/rota/pg18.new        the same while initdb runs; renamed when it is complete
    …/rota/pg18.run/       private files of Rota, mode 0700: locks, log, the mark of a detached server

Directories that Rota creates are private. Existing directories keep their mode and owner.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg import account
from rota.localpg.account import ServerAccount
from rota.localpg.binaries import find_binaries

MAX_SOCKET_PATH_BYTES = 100  # the kernel's limit is 107 bytes on Linux, 103 on macOS
SYSTEM_DIRECTORY = Path("/var/lib/rota")


@dataclass(frozen=True, slots=True)
class ServerPaths:
    """A data directory and the files beside it."""

    data: Path

    @property
    def staging(self) -> Path:
        return self._sibling("new")

    @property
    def run_directory(self) -> Path:
        return self._sibling("run")

    @property
    def control_lock(self) -> Path:
        return self.run_directory / "gate"

    @property
    def users_lock(self) -> Path:
        return self.run_directory / "shared"

    @property
    def watched_lock(self) -> Path:
        return self.run_directory / "watched"

    @property
    def watcher_lock(self) -> Path:
        return self.run_directory / "watcher"

    @property
    def detached_mark(self) -> Path:
        return self.run_directory / "kept"

    @property
    def log(self) -> Path:
        return self.run_directory / "server.log"

    @property
    def password_file(self) -> Path:
        return self.run_directory / "password"

    def _sibling(self, suffix: str) -> Path:
        return self.data.with_name(f"{self.data.name}.{suffix}")


def default_directory(major: int | None = None) -> Path:
    """Return the default data directory.

    Its name contains the major release, so that a new release never opens the files of an old one.
    """
    name = f"pg{major or find_binaries().major}"
    if base := os.environ.get("ROTA_LOCAL_DIR"):
        return Path(base).expanduser().resolve() / name
    base_directory = _user_data_directory()
    user = account.choose(base_directory / name)
    if user.drops_privileges and account.first_inaccessible(base_directory, user):
        # The user PostgreSQL will run as cannot enter root's home, and its mode is not changed.
        return SYSTEM_DIRECTORY / name
    return base_directory / name


def _user_data_directory() -> Path:
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "rota"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or _home()) / "rota"
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification requires that a relative path is ignored.
    return (Path(base) if base.startswith("/") else _home() / ".local" / "share") / "rota"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:  # a user id without a name, as in containers
        raise LocalPostgresError(
            "there is no home directory to keep a database in: choose a directory "
            "with ROTA_LOCAL_DIR, or set ROTA_DATABASE_URL"
        ) from error


def make_parents(data: Path, user: ServerAccount) -> None:
    """Create missing directories above the data directory. Existing ones are not changed."""
    for parent in reversed(data.parents):
        with suppress(FileExistsError):
            parent.mkdir(mode=0o700)
            if user.drops_privileges:
                parent.chmod(0o711)  # that user must be able to enter, but not to list


def make_private(directory: Path, owner: int) -> None:
    """Create `directory` with mode 0700 for `owner`.

    Raise LocalPostgresError if it exists with another owner or mode: in a temporary directory anyone can
    create it.
    """
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
        if owner != os.geteuid():
            os.chown(directory, owner, -1)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise LocalPostgresError(
            f"{directory} should be a directory of user {owner} with mode 0700, but is "
            f"{stat.filemode(found.st_mode)} of user {found.st_uid}: remove it, "
            "or choose another directory with ROTA_LOCAL_DIR"
        )


def socket_directory(data: Path, user: ServerAccount) -> Path:
    """Return the directory of the server's socket.

    It is the data directory, unless the path is too long for a socket or has characters that are special in
    a connection string.
    """
    if _fits_socket(data):
        return data
    name = f"rota-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    short = Path(tempfile.gettempdir()).resolve() / name
    if not _fits_socket(short):
        short = Path("/tmp") / name
    make_private(short, user.uid)
    return short


def _fits_socket(directory: Path) -> bool:
    path = f"{directory}/.s.PGSQL.65535"
    return (
        len(path) <= MAX_SOCKET_PATH_BYTES
        and re.fullmatch(r"[A-Za-z0-9_./+@~-]+", path) is not None
    )
