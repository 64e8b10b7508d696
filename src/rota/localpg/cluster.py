"""A data directory: whole, or not there.

initdb works in a sibling that is renamed when it has finished, so one that was interrupted leaves
nothing that could be taken for a database. It holds the gate while it lives: if the app that
started it is killed, nobody else begins before it has ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rota.errors import LocalPostgresError
from rota.localpg import account
from rota.localpg.account import Account
from rota.localpg.binaries import Binaries
from rota.localpg.places import Place

LOCALES = ("C.UTF-8", "C")  # older macOS has no C.UTF-8
INITDB_TIMEOUT = 300.0


def major(data: Path) -> int | None:
    """The release a data directory was made by; None when there is no database in it."""
    try:
        return int((data / "PG_VERSION").read_text().strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise LocalPostgresError(
            f"{data / 'PG_VERSION'} cannot be read ({error}): "
            "repair it, or choose another directory with ROTA_LOCAL_DIR"
        ) from error


def initialise(place: Place, binaries: Binaries, user: Account, gate: int, *, sync: bool) -> None:
    """Make the data directory, unless it is there. Inside the gate only."""
    _remove(place.new)
    if major(place.data) is not None:
        return
    if place.data.exists() and any(place.data.iterdir()):
        raise LocalPostgresError(
            f"{place.data} is not empty and holds no PostgreSQL data: choose another directory"
        )
    for locale in LOCALES:
        place.new.mkdir(mode=0o700)
        account.hand_over(place.new, user)
        failure = _initdb(place, binaries, user, gate, locale, sync=sync)
        if not failure:
            break
        _remove(place.new)
        if "locale" not in failure:
            break
    if failure:
        raise LocalPostgresError(_explain(place, user, failure))
    try:
        place.new.rename(place.data)
    except OSError as error:
        _remove(place.new)
        raise LocalPostgresError(
            f"{place.data} cannot be put in place ({error.strerror}); "
            "if it is a mount point, name a directory below it"
        ) from error


def _initdb(
    place: Place, binaries: Binaries, user: Account, gate: int, locale: str, *, sync: bool
) -> str:
    """Run it; what it complained about, or nothing."""
    command = user.command(
        binaries.program("initdb"),
        f"--pgdata={place.new}",
        "--username=postgres",
        "--encoding=UTF8",
        f"--locale={locale}",
        # The socket lies in a directory only its owner can enter. A TCP port is open to the whole
        # machine.
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
        "--no-instructions",
        *(() if sync else ("--no-sync",)),
    )
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd="/",
            env=environment(),
            pass_fds=(gate,),
            start_new_session=True,  # Ctrl-C is for the app; it will end initdb in its own way
            timeout=INITDB_TIMEOUT,
            check=False,
            **user.identity(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else done.stdout or f"initdb ended with {done.returncode}"


def environment() -> dict[str, str]:
    """Ours, without what would change a server: PGDATA and its kind, language, time zone."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "LC_", "LANG"))
    }
    return ours | {"LC_ALL": "C", "TZ": "UTC"}


def _explain(place: Place, user: Account, failure: str) -> str:
    message = f"initdb could not make {place.data}: {failure.strip()}"
    if user.dropped:
        message += f"\nIt ran as {user.name}, because PostgreSQL refuses to run as root"
        if closed := account.first_closed(place.data.parent, user):
            message += f", and {user.name} may not enter {closed}: choose a directory that it may"
        message += f"; or {account.REMEDIES}"
    return message


def _remove(directory: Path) -> None:
    """What an interrupted initdb left."""
    if directory.is_symlink():
        directory.unlink()
    elif directory.exists():
        shutil.rmtree(directory)
