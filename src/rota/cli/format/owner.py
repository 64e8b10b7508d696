"""Owner of a lock or leadership: a process by its label, or by its host and number."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from rota.cli import output
from rota.cli.table import WIDE, Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rota.store.read.coordination import LeaderRow, LockRow

Owned = TypeVar("Owned", "LockRow", "LeaderRow")


def is_narrow() -> bool:
    return output.console().width < WIDE


def columns(title: str, rows: Sequence[Owned]) -> list[Column[Owned]]:
    """Return columns for the owner of each row: separate ones if there are labels and enough width."""

    def style(row: Owned) -> str:
        return "" if row.instance else "dim"

    if is_narrow() or not any(each.label for each in rows if each.instance):
        return [Column(title, lambda row, now: _compact(row), style, wraps=True)]
    return [
        Column(title, lambda row, now: _label(row), style, wraps=True),
        Column("host", lambda row, now: row.host if row.instance else "", wraps=True),
        Column("process", lambda row, now: row.pid if row.instance else "", right=True),
    ]


def _label(row: LockRow | LeaderRow) -> str:
    if row.instance is None:
        return "none"
    return row.label or format_process(row.host, row.pid)


def _compact(row: LockRow | LeaderRow) -> str:
    if row.instance is None:
        return "none"
    return f"{row.label or ''} {format_process(row.host, row.pid)}".lstrip()


def format_process(host: str | None, pid: int | None) -> str:
    return f"{host}:{pid}"


def describe(host: str | None, pid: int | None, label: str | None) -> str:
    """Return the owner for a sentence: `nightly (web-1, process 4242)`."""
    return f"{label} ({host}, process {pid})" if label else f"{host}, process {pid}"


def current_operator() -> str:
    """Return the operator's name: the account, independent of environment variables."""
    name = getpass.getuser()
    with suppress(ImportError, KeyError):
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    return f"{name}@{socket.gethostname()}"
