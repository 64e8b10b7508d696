"""Binaries that the server's account can run.

Root's virtual environment is often in a directory that no other user may enter. Its mode must not be
changed, so the programs are copied once, to a directory that only root and that user can read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg.account import REMEDIES, ServerAccount
from rota.localpg.binaries import Binaries

IGNORED_FILES = shutil.ignore_patterns("include")  # half of the files, only needed for compiling


def make_runnable(binaries: Binaries, user: ServerAccount) -> Binaries:
    """Return the binaries, or a copy of them, that `user` can run."""
    if not user.drops_privileges or _can_run(binaries, user):
        return binaries
    copied = _copy_binaries(binaries, user)
    if _can_run(copied, user):
        return copied
    raise LocalPostgresError(
        f"PostgreSQL refuses to run as root, and {user.name} can run neither {binaries.directory} "
        f"nor a copy of it in {copied.directory}: {REMEDIES}"
    )


def _can_run(binaries: Binaries, user: ServerAccount) -> bool:
    try:
        subprocess.run(
            user.command(binaries.program("postgres"), "--version"),
            capture_output=True,
            cwd="/",
            check=True,
            **user.process_user(),
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _copy_binaries(binaries: Binaries, user: ServerAccount) -> Binaries:
    tree = binaries.directory.parent
    # Each release, path and group has its own copy.
    fingerprint = f"{binaries.directory}\n{binaries.version}\n{user.gid}"
    name = f"rota-{binaries.major}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:12]}"
    target = Path(tempfile.gettempdir()).resolve() / name
    copied = replace(binaries, directory=target / "package" / tree.name / binaries.directory.name)
    if target.exists():
        found = target.lstat()
        if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o022:
            raise LocalPostgresError(
                f"{target} should be a copy of PostgreSQL made by us, but belongs to user "
                f"{found.st_uid}: remove it"
            )
        return copied
    temporary = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        shutil.copytree(
            tree, temporary / "package" / tree.name, symlinks=True, ignore=IGNORED_FILES
        )
        # Wheels keep shared libraries beside the package: <package>/pginstall/bin loads them from
        # ../../../<package>.libs.
        libraries = tree.parent.with_name(f"{tree.parent.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, temporary / libraries.name, symlinks=True)
        _grant_tree_access(temporary, user.gid)
        temporary.rename(target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if not target.exists():  # otherwise another process has made an equal copy
            raise LocalPostgresError(
                f"{tree} cannot be copied to {target} for {user.name} to run: {error}; {REMEDIES}"
            ) from error
    return copied


def _grant_tree_access(tree: Path, gid: int) -> None:
    for directory, folders, files in os.walk(tree, topdown=False):
        for name in (*folders, *files):
            _grant_access(Path(directory, name), gid)
    _grant_access(tree, gid)


def _grant_access(path: Path, gid: int) -> None:
    if path.is_symlink():
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    os.chown(path, -1, gid)
    path.chmod((mode & 0o700) | (mode & 0o500) >> 3)
