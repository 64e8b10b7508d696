"""Initialisation of a data directory: it is complete, or absent.

initdb works in a sibling directory that is renamed when it has finished, so an interrupted initdb leaves
nothing that looks like a database. The initdb process inherits the control lock: if the app that started it
is killed, no other app begins before initdb has ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg import account
from rota.localpg.account import ServerAccount
from rota.localpg.binaries import Binaries
from rota.localpg.paths import ServerPaths

LOCALES = ("C.UTF-8", "C")  # older macOS has no C.UTF-8
INITDB_TIMEOUT_SECONDS = 300.0


def read_major(data: Path) -> int | None:
    """Return the major release a data directory was created by, or None if it holds no database."""
    try:
        return int((data / "PG_VERSION").read_text().strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LocalPostgresError(
            f"{data / 'PG_VERSION'} cannot be read ({error}): "
            "repair it, or choose another directory with ROTA_LOCAL_DIR"
        ) from error


def initialise(
    paths: ServerPaths, binaries: Binaries, user: ServerAccount, control_fd: int, *, sync: bool
) -> None:
    """Create the data directory, unless it exists. The caller holds the control lock."""
    _remove_directory(paths.staging)
    if read_major(paths.data) is not None:
        return
    if paths.data.exists() and any(paths.data.iterdir()):
        raise LocalPostgresError(
            f"{paths.data} is not empty and holds no PostgreSQL data: choose another directory"
        )
    for locale in LOCALES:
        paths.staging.mkdir(mode=0o700)
        account.chown_tree(paths.staging, user)
        failure = _initdb(paths, binaries, user, control_fd, locale, sync=sync)
        if not failure:
            break
        _remove_directory(paths.staging)
        if "locale" not in failure:
            break
    if failure:
        raise LocalPostgresError(_failure_message(paths, user, failure))
    try:
        paths.staging.rename(paths.data)
    except OSError as error:
        _remove_directory(paths.staging)
        raise LocalPostgresError(
            f"{paths.data} cannot be put in place ({error.strerror}); "
            "if it is a mount point, name a directory below it"
        ) from error


def _initdb(
    paths: ServerPaths,
    binaries: Binaries,
    user: ServerAccount,
    control_fd: int,
    locale: str,
    *,
    sync: bool,
) -> str:
    """Run initdb and return its error output, or "" on success."""
    command = user.command(
        binaries.program("initdb"),
        f"--pgdata={paths.staging}",
        "--username=postgres",
        "--encoding=UTF8",
        f"--locale={locale}",
        # Only the owner can enter the directory of the socket. A TCP port is open to the whole machine.
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--no-instructions",
        *(() if sync else ("--no-sync",)),
    )
    try:
        completed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=server_environment(),
            pass_fds=(control_fd,),
            start_new_session=True,  # Ctrl-C is meant for the app, which ends initdb itself
            timeout=INITDB_TIMEOUT_SECONDS,
            check=False,
            **user.process_user(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        ""
        if completed.returncode == 0
        else completed.stdout or f"initdb ended with {completed.returncode}"
    )


def server_environment() -> dict[str, str]:
    """Return the environment without variables that affect a server: PGDATA and others, language, time
    zone.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "LC_", "LANG"))
    }
    return inherited | {"LC_ALL": "C", "TZ": "UTC"}


def _failure_message(paths: ServerPaths, user: ServerAccount, failure: str) -> str:
    message = f"initdb could not make {paths.data}: {failure.strip()}"
    if user.drops_privileges:
        message += f"\nIt ran as {user.name}, because PostgreSQL refuses to run as root"
        if inaccessible := account.first_inaccessible(paths.data.parent, user):
            message += (
                f", and {user.name} may not enter {inaccessible}: choose a directory that it may"
            )
        message += f"; or {account.REMEDIES}"
    return message


def _remove_directory(directory: Path) -> None:
    """Remove the remains of an interrupted initdb."""
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        shutil.rmtree(directory)
