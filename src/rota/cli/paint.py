"""How things look: tables on a terminal, the same tables unclipped in a pipe, JSON for programs.

Text that came out of the database is shown as text: no markup in it is obeyed, and control characters
become visible instead of moving somebody's cursor.
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

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

STATES = {
    "waiting": "dim",
    "ready": "default",
    "asleep": "blue",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "quarantined": "magenta",
    "cancelled": "yellow",
    "expired": "yellow",
    "skipped": "dim",
}

UNCLIPPED = 10_000
"""Columns where nobody looks at a terminal: a pipe must get every character."""

_LOST = re.compile(r"worker (\d+)(?: \((.+), process \d+\))? was lost")
"""How the database tells of it, with more than fits a table."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console() -> Console:
    from rich.console import Console

    out = Console(highlight=False, emoji=False, markup=False)
    if not out.is_terminal:
        out = Console(highlight=False, emoji=False, markup=False, width=UNCLIPPED)
    return out


def say(words: str, style: str = "") -> None:
    """A sentence, wrapped between words where the terminal ends."""
    sentence = text(words, style)
    sentence.no_wrap = False
    console().print(sentence)


def hint(words: str) -> None:
    """What to do next, where somebody is looking."""
    out = console()
    if out.is_terminal:
        out.print()
        say(words, "dim")


def show(table: RenderableType) -> None:
    """Print a table; in a pipe without the blanks that fill its last column."""
    out = console()
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as printed:
        out.print(table)
    for each in printed.get().splitlines():
        click.echo(each.rstrip())


def lines(drawn: Sequence[Text]) -> None:
    """Lines that are as long as they are meant to be."""
    out = console()
    if out.is_terminal:
        for each in drawn:
            out.print(each, soft_wrap=True)
    else:
        click.echo("\n".join(each.plain for each in drawn))


def table(*columns: str, right: Sequence[str] = (), free: Sequence[str] = ()) -> Table:
    """Columns under quiet headings. Those named in `right` are numbers; those in `free` hold names and
    messages, and are the ones that give way where the terminal is narrow."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(
            column, justify="right" if column in right else "left", no_wrap=column not in free
        )
    return made


def facts(pairs: Iterable[tuple[str, Text | str]]) -> Table:
    """Names and what they stand for, one a line."""
    made = table("", "value", free=("value",))
    made.show_header = False
    for name, value in pairs:
        words = text(value) if isinstance(value, str) else value
        words.no_wrap = False
        made.add_row(text(name, "dim"), words)
    return made


def text(value: object, style: str = "") -> Text:
    """One line, cut with … where it does not fit."""
    from rich.text import Text

    words = "" if value is None else plain(str(value))
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")


def whole(value: object, style: str = "") -> Text:
    """The same over several lines where it does not fit: what somebody needs to the last letter."""
    words = text(value, style)
    words.no_wrap, words.overflow = False, "fold"
    return words


def state(word: str) -> Text:
    return text(word, STATES.get(word, ""))


def block(title: str, content: str, style: str = "") -> None:
    """Something of several lines under a heading; no line is cut."""
    out = console()
    out.print()
    out.print(text(title, "dim"))
    for each in content.rstrip().splitlines():
        out.print(text(f"  {each}", style), soft_wrap=True)


def plain(value: str) -> str:
    """Control characters, line ends and tabs apart, in a form that can be seen."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)


def line(value: str) -> str:
    """The same on one line."""
    return " ".join(plain(value).split())


def number(value: int) -> str:
    return f"{value:,}"


def span(seconds: float | None) -> str:
    """A duration in the one or two units a person would say it in."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} {'µs' if _can_say('µ') else 'us'}"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    for size, unit, small, below in (
        (60, "min", 1, "s"),
        (3600, "h", 60, "min"),
        (86400, "d", 3600, "h"),
    ):
        if seconds < size * (24 if size == 3600 else 60) or size == 86400:
            whole, rest = divmod(int(seconds), size)
            return f"{whole} {unit} {rest // small} {below}" if rest // small else f"{whole} {unit}"
    raise AssertionError("every duration has a unit")


def _can_say(letter: str) -> bool:
    try:
        letter.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def age(then: datetime, now: datetime) -> str:
    """How long ago, in whole units: `3 min`."""
    seconds = max((now - then).total_seconds(), 0)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def clock(then: datetime) -> str:
    """A time where the reader is."""
    return then.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def pretty(document: bytes) -> str:
    """JSON for reading: every digit and every escape as it was stored."""
    return msgspec.json.format(document, indent=2).decode()


def summary(error: bytes | None) -> str:
    """A stored error on one line; of a loss, what it was lost with."""
    if error is None:
        return ""
    document: dict[str, Any] = json.loads(error)
    if not is_loss(error):
        return line(f"{document.get('type')}: {document.get('message')}")
    message = line(f"{document.get('message')}")
    if found := _LOST.match(message):
        return f"lost with worker {found[1]}{f' ({found[2]})' if found[2] else ''}"
    return message


def is_loss(error: bytes | None) -> bool:
    """Whether an attempt was lost with its worker, rather than failed."""
    return error is not None and json.loads(error).get("type") == "rota.errors.WorkerLost"


def traceback(error: bytes) -> str:
    found: str = json.loads(error).get("traceback", "")
    return found or summary(error)


def say_json(document: Any) -> None:
    """One JSON document on stdout: times in ISO 8601, integers exact, stored JSON as it was stored."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", nl=False)


def fields(struct: msgspec.Struct, *, stored: Iterable[str] = ()) -> dict[str, Any]:
    """A row as a document; the fields named in `stored` hold JSON already."""
    document = msgspec.structs.asdict(struct)
    for name in stored:
        if document[name] is not None:
            document[name] = msgspec.Raw(document[name])
    if document.get("took") is not None:
        # It was kept in seven digits; the rest would be noise.
        document["took"] = float(f"{document['took']:.7g}")
    return document
