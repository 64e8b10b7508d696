"""How a demo looks in a terminal: never more than 80 columns or 24 lines are needed, and no colour is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rota.cli import paint
from rota.cli.demo.scene import Hand, Part, Scene

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

BAR = 20
NAME = 15
COUNT = 8
STYLES = {"works": "green", "stopping": "cyan", "killed": "bold red", "left": "dim"}
SHOWN = 3
"""Workers."""


class View:
    """Drawn anew from the scene each time it is asked for."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.console import Group

        yield Group(*self._rows())

    def _rows(self) -> list[RenderableType]:
        scene = self._scene
        rows: list[RenderableType] = ["", self._title(), *self._addresses(), ""]
        if scene.began is None:
            return [*rows, paint.text(f"  {scene.doing} …", "dim"), ""]
        return [
            *rows,
            _parts(scene.parts),
            "",
            _hands(scene.hands),
            "",
            _happenings(scene),
        ]

    def _title(self) -> Table:
        scene = self._scene
        left = paint.text("Rota demo", "bold")
        words = "Ctrl-C ends it"
        if scene.began is not None:
            words = f"{min(scene.now, scene.seconds):.0f} of {scene.seconds:g} s · {words}"
        return _row(left, paint.text(words, "dim"))

    def _addresses(self) -> list[RenderableType]:
        scene = self._scene
        if scene.address is None:
            return []
        rows: list[RenderableType] = [_address("dashboard", scene.address)]
        if scene.link is not None:
            rows.append(_address("a running flow", scene.link))
        return rows


def _address(name: str, url: str) -> Text:
    words = paint.text(f"  {name:<{NAME}} ")
    words.append(url, f"bold cyan underline link {url}")
    return words


def _row(left: Text, right: Text) -> Table:
    made = _grid("left", "right", last=False)
    made.add_row(left, right)
    return made


def _grid(*columns: Literal["left", "right"] | int, last: bool = True) -> Table:
    """Columns that keep their width, numbers to the right, and a last one that has what is left."""
    from rich.table import Table

    made = Table.grid(expand=True, padding=(0, 1, 0, 0))
    for each in columns:
        if isinstance(each, int):
            width = abs(each)
            justify: Literal["left", "right"] = "right" if each < 0 else "left"
            made.add_column(width=width, min_width=width, justify=justify, no_wrap=True)
        else:
            made.add_column(justify=each, no_wrap=True, ratio=1)
    if last:
        made.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    return made


def _parts(parts: list[Part]) -> Table:
    from rich.progress_bar import ProgressBar

    made = _grid(NAME + 2, BAR, -COUNT)
    for part in parts:
        bar: RenderableType = ""
        if part.total:
            bar = ProgressBar(
                total=part.total,
                completed=part.done,
                width=BAR,
                style="bright_black",
                complete_style="cyan",
                finished_style="green",
            )
        name = paint.text(f"  {part.name}")
        made.add_row(name, bar, paint.text(part.count), paint.text(part.words, "dim"))
    return made


def _hands(hands: list[Hand]) -> Table:
    made = _grid(8, -8, 9, -6)
    heads = ("  worker", "process", "", "holds", "")
    made.add_row(*(paint.text(head, "dim") for head in heads))
    for hand in hands[-SHOWN:]:
        gone = hand.state in ("killed", "left")
        made.add_row(
            paint.text(f"  {hand.number}", "dim" if gone else ""),
            paint.text(hand.pid, "dim" if gone else ""),
            paint.text(f" {hand.state}", STYLES[hand.state]),
            paint.text(paint.number(hand.held) if hand.held or not gone else ""),
            paint.text(hand.words, "dim"),
        )
    return made


def _happenings(scene: Scene) -> Table:
    made = _grid(-6)
    for each in scene.happenings:
        made.add_row(paint.text(f"{each.after:.0f} s", "dim"), paint.text(each.words, each.style))
    return made
