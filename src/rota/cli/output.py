"""Output: tables on a terminal, the same tables without truncation in a pipe, JSON for programs.

Text from the database is printed literally: markup is not interpreted, and control characters are made
visible so that they cannot affect the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click

from rota.model.text import escape_control, in_whole_units, single_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

STATE_STYLES = {
    "waiting": "dim",
    "queued": "default",
    "sleeping": "blue",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "quarantined": "magenta",
    "cancelled": "yellow",
    "expired": "yellow",
    "skipped": "dim",
}

PIPE_COLUMNS = 10_000
"""Width if the output is not a terminal: a pipe must get every character."""

WORKER_LOST = "rota.errors.WorkerLost"

_WORKER_LOST = re.compile(r"worker (\d+)(?: \((.+), process \d+\))? was lost")
"""Message of the database about a lost worker, which is too long for a table."""


def console() -> Console:
    from rich.console import Console

    out = Console(highlight=False, emoji=False, markup=False)
    if not out.is_terminal:
        out = Console(highlight=False, emoji=False, markup=False, width=PIPE_COLUMNS)
    return out


def print_text(text: str, style: str = "") -> None:
    """Print a sentence, wrapped between words at the terminal's width."""
    sentence = cell(text, style)
    sentence.no_wrap = False
    console().print(sentence)


def hint(text: str) -> None:
    """Print a hint about the next command, on a terminal only."""
    out = console()
    if out.is_terminal:
        out.print()
        print_text(text, "dim")


def print_renderable(renderable: RenderableType) -> None:
    """Print a table; in a pipe without trailing blanks."""
    out = console()
    if out.is_terminal:
        out.print(renderable)
        return
    with out.capture() as printed:
        out.print(renderable)
    for each in printed.get().splitlines():
        click.echo(each.rstrip())


def print_lines(lines: Sequence[Text]) -> None:
    """Print lines without wrapping."""
    out = console()
    if out.is_terminal:
        for each in lines:
            out.print(each, soft_wrap=True)
    else:
        click.echo("\n".join(each.plain for each in lines))


def new_table(*columns: str, right: Sequence[str] = (), free: Sequence[str] = ()) -> Table:
    """Return a table with dim headings.

    Columns in `right` are right-aligned numbers. Columns in `free` hold names and messages and are
    shortened on a narrow terminal.
    """
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        grid.add_column(
            column, justify="right" if column in right else "left", no_wrap=column not in free
        )
    return grid


def property_table(pairs: Iterable[tuple[str, Text | str]]) -> Table:
    """Return a table of names and values, one per line."""
    grid = new_table("", "value", free=("value",))
    grid.show_header = False
    for name, value in pairs:
        words = cell(value) if isinstance(value, str) else value
        words.no_wrap = False
        grid.add_row(cell(name, "dim"), words)
    return grid


def cell(value: object, style: str = "") -> Text:
    """Return one line of text, truncated with … where it does not fit."""
    from rich.text import Text

    words = "" if value is None else escape_control(str(value))
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")


def wrapped_cell(value: object, style: str = "") -> Text:
    """Return text that wraps instead of being truncated."""
    words = cell(value, style)
    words.no_wrap, words.overflow = False, "fold"
    return words


def state_cell(state: str) -> Text:
    return cell(state, STATE_STYLES.get(state, ""))


def print_block(title: str, content: str, style: str = "") -> None:
    """Print several lines under a heading, without truncation."""
    out = console()
    out.print()
    out.print(cell(title, "dim"))
    for each in content.rstrip().splitlines():
        out.print(cell(f"  {each}", style), soft_wrap=True)


def format_count(value: int) -> str:
    return f"{value:,}"


def format_duration(seconds: float | None) -> str:
    """Return a duration in one or two units."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} {'µs' if can_encode('µ') else 'us'}"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return in_whole_units(seconds)


def can_encode(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def format_age(start: datetime, end: datetime) -> str:
    """Return the time between two moments in whole units: `3 min`."""
    seconds = max((end - start).total_seconds(), 0)
    return in_whole_units(seconds, detail_below=0)


def format_time(time: datetime) -> str:
    """Return a time in the local time zone."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def format_json(document: bytes) -> str:
    """Return indented JSON, with digits and escapes as stored."""
    return msgspec.json.format(document, indent=2).decode()


class TaskError(msgspec.Struct):
    type: str | None = None
    message: Any = None


def error_summary(document: bytes | None) -> str:
    """Return a stored error on one line; for a lost worker, the worker."""
    if document is None:
        return ""
    error = msgspec.json.decode(document, type=TaskError)
    if error.type != WORKER_LOST:
        return single_line(f"{error.type}: {error.message}")
    message = single_line(f"{error.message}")
    if found := _WORKER_LOST.match(message):
        return f"lost with worker {found[1]}{f' ({found[2]})' if found[2] else ''}"
    return message


def is_worker_lost(error: bytes | None) -> bool:
    """True if the attempt was lost with its worker rather than failed."""
    return error is not None and json.loads(error).get("type") == WORKER_LOST


def format_traceback(error: bytes) -> str:
    found: str = json.loads(error).get("traceback", "")
    return found or error_summary(error)


def print_json(document: Any) -> None:
    """Print one JSON document: times in ISO 8601, integers exact, stored JSON unchanged."""
    from rota.operations.documents import to_document

    data = msgspec.json.encode(to_document(document))
    click.echo(msgspec.json.format(data, indent=2) + b"\n", nl=False)


def fields(struct: msgspec.Struct, *, stored: Iterable[str] = ()) -> dict[str, Any]:
    """Return a row as a dict; the fields in `stored` contain JSON already."""
    document = msgspec.structs.asdict(struct)
    for name in stored:
        if document[name] is not None:
            document[name] = msgspec.Raw(document[name])
    if document.get("seconds") is not None:
        # It is stored with seven digits; more would be noise.
        document["seconds"] = float(f"{document['seconds']:.7g}")
    return document
