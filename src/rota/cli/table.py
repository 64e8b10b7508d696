"""Tables with declared columns, and lists of operations printed as such a table or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import rich_click as click

from rota.cli import output

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text

    from rota.cli.target import Target
    from rota.operations.declare import Operation

Row = TypeVar("Row")
Document = TypeVar("Document")

WIDE = 100
"""Terminal width from which all columns fit."""

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the document of the HTTP API."
)


def limit_option(default: int, maximum: int = 100_000) -> Callable[[Any], Any]:
    return click.option(
        "--limit",
        type=click.IntRange(1, maximum),
        default=default,
        show_default=True,
        help="Maximum number of rows.",
    )


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """Column of a table.

    A cell is one line, in the column's style unless it is a rich text. On a narrow terminal it is cut
    off if the column `shrinks`, and continued on the next line if it `wraps`.
    """

    title: str
    cell: Callable[[Row, datetime], object]
    style: str | Callable[[Row], str] = ""
    right: bool = False
    shrinks: bool = False
    wraps: bool = False
    from_width: int = 0
    """Terminal width from which the column is shown."""

    def text(self, row: Row, now: datetime) -> Text:
        from rich.text import Text

        value = self.cell(row, now)
        if isinstance(value, Text):
            return value
        style = self.style if isinstance(self.style, str) else self.style(row)
        make = output.wrapped_cell if self.wraps else output.cell
        return make(value, style)


class Table(Generic[Row]):
    """Table that omits columns without content and columns that the terminal has no room for."""

    def __init__(self, *columns: Column[Row]) -> None:
        self._columns = columns

    def print(self, rows: Sequence[Row], now: datetime) -> None:
        width = output.console().width
        cells = {each: [each.text(row, now) for row in rows] for each in self._columns}
        filled = {each: texts for each, texts in cells.items() if any(map(len, texts))}
        hidden = [each.title for each in filled if each.from_width > width]
        grid = _grid({each: texts for each, texts in filled.items() if each.from_width <= width})
        if hidden:
            grid.padding = (0, 1, 0, 0)
        output.print_renderable(grid)
        if hidden:
            output.hint(f"{' and '.join(hidden)}: in a wider terminal, or with --json")

    def grid(self, rows: Sequence[Row], now: datetime, width: int, empty: str = "") -> Grid:
        """Return the table with its empty columns, for a display that is redrawn.

        `empty` is the text of a table without rows.
        """
        shown = [each for each in self._columns if each.from_width <= width]
        grid = _grid({each: [each.text(row, now) for row in rows] for each in shown})
        if not rows:
            grid.add_row("", output.cell(empty, "dim"))
        return grid


def _grid(cells: dict[Column[Row], list[Text]]) -> Grid:
    grid = output.new_table(
        *(each.title for each in cells),
        right=[each.title for each in cells if each.right],
        free=[each.title for each in cells if each.shrinks or each.wraps],
    )
    for line in zip(*cells.values(), strict=True):
        grid.add_row(*line)
    return grid


def list_command(
    target: Target,
    operation: Operation[Document],
    show: Callable[[Document, datetime], None],
    *,
    as_json: bool,
    query: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Document:
    """Perform an operation and print its document: as JSON, or with `show`.

    `query` contains the fields of the operation's query: options of the command that have their names.
    """
    if query is not None:
        assert operation.query is not None
        arguments["query"] = operation.query(**query)
    document, now = target.perform(operation, **arguments)
    if as_json:
        output.print_json(document)
    else:
        show(document, now)
    return document
