"""User that PostgreSQL's programs run as. They refuse to run as root.

Root runs them in a user namespace: inside, they run as an ordinary user; outside, every file still belongs
to root. If user namespaces are refused, as in most containers, root drops to `postgres` or `nobody` and
gives that user the data directory, but no directory above it. No user is ever created.

Linux lets a process map itself to any user id, but initdb requires one with a name. The namespace therefore
maps to an existing user. The same solution serves a container that runs under a user id without a name.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rota.errors import LocalPostgresError

if sys.platform != "win32":
    import pwd

FALLBACK_USERS = ("postgres", "nobody")
REMEDIES = (
    "run as another user, or set ROTA_DATABASE_URL to use a database you already have, "
    "or name binaries that an ordinary user can run in ROTA_PG_BIN"
)


class ProcessUser(TypedDict, total=False):
    """Arguments of subprocess: the user to switch to between fork and exec."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """Owner of the files as seen from outside, and the way to become that user."""

    uid: int
    gid: int
    name: str
    command_prefix: tuple[str, ...] = ()
    drops_privileges: bool = False

    def command(self, *words: str | Path) -> list[str]:
        return [*self.command_prefix, *map(str, words)]

    def process_user(self) -> ProcessUser:
        if not self.drops_privileges:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def choose(data: Path) -> ServerAccount:
    """Return the account for this data directory. An existing cluster keeps its owner."""
    if sys.platform == "win32":
        raise LocalPostgresError(
            "the embedded PostgreSQL runs on Linux and macOS only: set ROTA_DATABASE_URL"
        )
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        name = _user_name(uid)
        own = ServerAccount(uid, gid, name or str(uid))
        return own if name else _namespace_account(uid, gid) or own
    return _choose_for_root(_owner_uid(data))


def _choose_for_root(owner: int) -> ServerAccount:
    forced = os.environ.get("ROTA_LOCAL_ROOT", "")
    if forced not in ("", "namespace", "drop"):
        raise LocalPostgresError(f"ROTA_LOCAL_ROOT is {forced!r}; say namespace or drop")
    if forced == "namespace" or (not forced and owner == 0):
        if namespaced := _namespace_account(0, 0):
            return namespaced
        if forced:
            raise LocalPostgresError(
                f"ROTA_LOCAL_ROOT=namespace, but user namespaces are refused here: {REMEDIES}"
            )
    if owner:
        return ServerAccount(
            owner, _group_id(owner), _user_name(owner) or str(owner), drops_privileges=True
        )
    for name in FALLBACK_USERS:
        if found := _find_user(name):
            return ServerAccount(found[0], found[1], name, drops_privileges=True)
    raise LocalPostgresError(
        "PostgreSQL refuses to run as root; user namespaces are refused here "
        f"and there is no user {' or '.join(FALLBACK_USERS)} to become: {REMEDIES}"
    )


def _namespace_account(uid: int, gid: int) -> ServerAccount | None:
    unshare = shutil.which("unshare")
    ordinary = next(filter(None, map(_find_user, FALLBACK_USERS)), None)
    if not unshare or not ordinary:
        return None
    inner_uid, inner_gid = ordinary
    prefix = (unshare, "--user", f"--map-user={inner_uid}", f"--map-group={inner_gid}", "--")
    probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return (
        ServerAccount(uid, gid, "root" if uid == 0 else str(uid), prefix)
        if not probe.returncode
        else None
    )


def chown_tree(tree: Path, user: ServerAccount) -> None:
    """Change the owner of a data directory and everything in it. Symbolic links are not followed."""
    if tree.lstat().st_uid == user.uid:
        return
    for directory, folders, files in os.walk(tree):
        for name in (*folders, *files):
            os.chown(os.path.join(directory, name), user.uid, user.gid, follow_symlinks=False)
    os.chown(tree, user.uid, user.gid)  # last: an interrupted walk is repeated


def first_inaccessible(path: Path, user: ServerAccount) -> Path | None:
    """Return the outermost directory on the way to `path`, or `path`, that the account cannot enter."""
    for directory in (*reversed(path.parents), path):
        try:
            found = directory.stat()
        except OSError:
            return None  # does not exist yet: it will be created accessible
        if found.st_uid == user.uid:
            passable = stat.S_IXUSR
        elif found.st_gid == user.gid:
            passable = stat.S_IXGRP
        else:
            passable = stat.S_IXOTH
        if not found.st_mode & passable:
            return directory
    return None


def _owner_uid(data: Path) -> int:
    try:
        return (data / "PG_VERSION").stat().st_uid
    except OSError:
        return 0


if sys.platform != "win32":

    def _user_name(uid: int) -> str | None:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return None

    def _group_id(uid: int) -> int:
        try:
            return pwd.getpwuid(uid).pw_gid
        except KeyError:
            return uid

    def _find_user(name: str) -> tuple[int, int] | None:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        return entry.pw_uid, entry.pw_gid
