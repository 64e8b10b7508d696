"""Owner of a lock or leadership: a process by its label, or by its host and number."""

from __future__ import annotations

import getpass
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from rota.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from rota.store.read.coordination import LeaderRow, LockRow

WIDE_TERMINAL_COLUMNS = 100
"""Terminal width from which all columns fit."""


def is_narrow() -> bool:
    return output.console().width < WIDE_TERMINAL_COLUMNS


def columns(title: str, rows: Sequence[LockRow | LeaderRow]) -> dict[str, list[Text]]:
    """Return columns for the owner of each row: separate ones if there are labels and enough width."""
    if is_narrow() or not any(each.label for each in rows if each.instance):
        return {title: [_compact_cell(each) for each in rows]}
    return {
        title: [_label_cell(each) for each in rows],
        "host": [output.wrapped_cell(each.host if each.instance else "") for each in rows],
        "process": [output.cell(each.pid if each.instance else "") for each in rows],
    }


def _label_cell(row: LockRow | LeaderRow) -> Text:
    if row.instance is None:
        return output.cell("none", "dim")
    return output.wrapped_cell(row.label or format_process(row.host, row.pid))


def _compact_cell(row: LockRow | LeaderRow) -> Text:
    if row.instance is None:
        return output.cell("none", "dim")
    label = f"{row.label} " if row.label else ""
    return output.wrapped_cell(f"{label}{format_process(row.host, row.pid)}")


def print_table(
    columns: dict[str, list[Text]], *, right: Sequence[str], free: Sequence[str]
) -> None:
    """Print a table without empty columns."""
    shown = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    grid = output.new_table(*shown, right=right, free=free)
    for cells in zip(*shown.values(), strict=True):
        grid.add_row(*cells)
    output.print_renderable(grid)


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
