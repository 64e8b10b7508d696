"""Rendering of a demo. It needs at most 80 columns and 24 lines, and no colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rota.cli import output
from rota.cli.demo.state import DemoState, DemoWorker, ProgressRow

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

BAR_WIDTH = 20
NAME_WIDTH = 15
COUNT_WIDTH = 8
STYLES = {"active": "green", "stopping": "cyan", "killed": "bold red", "stopped": "dim"}
MAX_WORKERS = 3


class DemoView:
    """View that renders the current state each time it is drawn."""

    def __init__(self, state: DemoState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = self._state
        time = "" if state.began is None else f"{state.shown_seconds:.0f} of {state.seconds:g} s · "
        title = output.cell("Rota demo", "bold")
        title.append(f"{time}Ctrl-C ends it".rjust(options.max_width - len(title)), "dim")
        yield ""
        yield title
        yield from _addresses(state)
        yield ""
        if state.began is None:
            yield output.cell(f"  {state.setup_step} …\n", "dim")
            return
        yield _progress_table(state.progress_rows)
        yield ""
        yield _worker_table(state.workers)
        yield ""
        events = _grid(-6)
        for each in state.events:
            seconds = output.cell(f"{each.seconds:.0f} s", "dim")
            events.add_row(seconds, output.cell(each.text, each.style))
        yield events


def _addresses(state: DemoState) -> list[Text]:
    found = []
    for name, url in (("dashboard", state.dashboard_url), ("a running flow", state.flow_url)):
        if url is not None:
            found.append(output.cell(f"  {name:<{NAME_WIDTH}} "))
            found[-1].append(url, f"bold cyan underline link {url}")
    return found


def _grid(*widths: int) -> Table:
    """Return a grid of fixed-width columns, right-aligned if negative, and a last one for the rest."""
    from rich.table import Table

    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    for each in widths:
        width = abs(each)
        justify: Literal["left", "right"] = "right" if each < 0 else "left"
        grid.add_column(width=width, min_width=width, justify=justify, no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    return grid


def _progress_table(rows: list[ProgressRow]) -> Table:
    from rich.progress_bar import ProgressBar

    grid = _grid(NAME_WIDTH + 2, BAR_WIDTH, -COUNT_WIDTH)
    for row in rows:
        bar: RenderableType = ""
        if row.total:
            bar = ProgressBar(
                total=row.total,
                completed=row.done,
                width=BAR_WIDTH,
                style="bright_black",
                complete_style="cyan",
                finished_style="green",
            )
        name = output.cell(f"  {row.name}")
        grid.add_row(name, bar, output.cell(row.count), output.cell(row.text, "dim"))
    return grid


def _worker_table(workers: list[DemoWorker]) -> Table:
    grid = _grid(8, -8, 9, -6)
    heads = ("  worker", "process", "", "jobs", "")
    grid.add_row(*(output.cell(head, "dim") for head in heads))
    for worker in workers[-MAX_WORKERS:]:
        has_ended = worker.state in ("killed", "stopped")
        grid.add_row(
            output.cell(f"  {worker.worker}", "dim" if has_ended else ""),
            output.cell(worker.pid, "dim" if has_ended else ""),
            output.cell(f" {worker.state}", STYLES[worker.state]),
            output.cell(output.format_count(worker.held) if worker.held or not has_ended else ""),
            output.cell(worker.text, "dim"),
        )
    return grid
