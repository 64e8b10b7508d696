"""Whom something belongs to: a process by its label, or by its host and number."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from rota.cli import paint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from rota.store.standing import LeaderLine, LockLine

ROOMY = 100
"""Columns of a terminal that has room for everything."""


def is_narrow() -> bool:
    return paint.console().width < ROOMY


def columns(title: str, lines: Sequence[LockLine | LeaderLine]) -> dict[str, list[Text]]:
    """Of each line who it is and where; in columns of their own, if that says more and there is room."""
    if is_narrow() or not any(each.label for each in lines if each.instance):
        return {title: [_short(each) for each in lines]}
    return {
        title: [_named(each) for each in lines],
        "host": [paint.whole(each.host if each.instance else "") for each in lines],
        "process": [paint.text(each.pid if each.instance else "") for each in lines],
    }


def _named(line: LockLine | LeaderLine) -> Text:
    if line.instance is None:
        return paint.text("nobody", "dim")
    return paint.whole(line.label or place(line.host, line.pid))


def _short(line: LockLine | LeaderLine) -> Text:
    if line.instance is None:
        return paint.text("nobody", "dim")
    label = f"{line.label} " if line.label else ""
    return paint.whole(f"{label}{place(line.host, line.pid)}")


def show(columns: dict[str, list[Text]], *, right: Sequence[str], free: Sequence[str]) -> None:
    """As a table, without the columns that would say nothing of anybody."""
    told = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    table = paint.table(*told, right=right, free=free)
    for cells in zip(*told.values(), strict=True):
        table.add_row(*cells)
    paint.show(table)


def place(host: str | None, pid: int | None) -> str:
    return f"{host}:{pid}"


def told(host: str | None, pid: int | None, label: str | None) -> str:
    """In a sentence: `nightly (web-1, process 4242)`."""
    return f"{label} ({host}, process {pid})" if label else f"{host}, process {pid}"


def operator() -> str:
    """Who is at it, by the account and not by what the environment says."""
    name = getpass.getuser()
    with suppress(ImportError, KeyError):
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    return f"{name}@{socket.gethostname()}"
