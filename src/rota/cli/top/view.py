"""How a look at everything is drawn: what does not fit is counted, and no colour is needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import paint
from rota.cli.top.glance import QueueSight, Sight

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from rota.store.standing import AlertLine
    from rota.store.views import RunLine, WorkerDetail

BAR = 10
"""Letters of a bar that shows how busy a worker is."""

AROUND = 13
"""Lines that are no rows: the first two, headings, and what separates."""

ROOMY = 100
"""Columns where there is room for what is said less often."""


class View:
    def __init__(self, sight: Sight, trouble: str = "", *, live: bool = True) -> None:
        self._sight = sight
        self._trouble = trouble
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        roomy = options.max_width >= ROOMY
        sight = self._sight
        room = (options.height or console.height) - AROUND if self._live else 1000
        alerts = sight.alerts[: max(min(len(sight.alerts), room // 5), 1)]
        shares = _share(
            room - len(alerts), [len(sight.queues), len(sight.workers), len(sight.runs)]
        )
        busiest = sorted(sight.queues, key=lambda each: (-each.ready, -each.ended, each.queue))
        hardest = sorted(sight.workers, key=lambda each: (-each.running, each.worker))
        yield self._title()
        yield _totals(sight)
        if sight.alerts:
            yield ""
            yield from _alerts(alerts, sum(sight.fleet.alerts.values()), sight.at)
        yield ""
        yield _queues(busiest[: shares[0]], roomy)
        yield from _rest(len(busiest) - shares[0], "queue")
        yield ""
        yield _workers(hardest[: shares[1]], sight, roomy)
        yield from _rest(len(hardest) - shares[1], "worker")
        yield ""
        yield _runs(sight.runs[: shares[2]], sight.at)
        yield from _rest(len(sight.runs) - shares[2], "run")

    def _title(self) -> RenderableType:
        from rich.table import Table

        if not self._live:
            title = paint.text("rota top", "bold")
            title.append(f"  {paint.clock(self._sight.at)}", "dim")
            return title
        made = Table.grid(expand=True)
        made.add_column(no_wrap=True)
        made.add_column(no_wrap=True, justify="right")
        right = paint.text(self._trouble, "bold red")
        if not self._trouble:
            clock = self._sight.at.astimezone().strftime("%H:%M:%S")
            right = paint.text(f"{clock} · q leaves", "dim")
        made.add_row(paint.text("rota top", "bold"), right)
        return made


def _share(room: int, wanted: Sequence[int]) -> list[int]:
    """So many lines for each: none wants more than it has, and what one leaves the others get."""
    given = [0] * len(wanted)
    left = max(room, len(wanted))
    while left > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for place, want in enumerate(wanted):
            if left > 0 and given[place] < want:
                given[place] += 1
                left -= 1
    return given


def _rest(many: int, what: str) -> list[RenderableType]:
    return [paint.text(f"… and {many} more {what}{'s' if many > 1 else ''}", "dim")] if many else []


def _totals(sight: Sight) -> Text:
    fleet = sight.fleet
    there = sum(fleet.workers.get(state, 0) for state in ("active", "draining", "silent"))
    ready = sum(each.ready for each in sight.queues)
    ended = sum(each.ended for each in sight.queues)
    figures = [
        (paint.number(there), "worker" if there == 1 else "workers", ""),
        (f"{paint.number(fleet.running)}/{paint.number(fleet.concurrency)}", "running", ""),
        (paint.number(ready), "ready", ""),
        (_speed(ended), "jobs/s", ""),
        (paint.number(fleet.asleep), "asleep", ""),
        (paint.number(fleet.quarantined), "quarantined", "magenta" if fleet.quarantined else ""),
    ]
    if dead := fleet.workers.get("dead", 0):
        figures.append((paint.number(dead), "dead", "red"))
    words = paint.text("")
    for figure, what, style in figures:
        if words.plain:
            words.append(" · ", "dim")
        words.append(figure, style or "bold")
        words.append(f" {what}", style or "dim")
    return words


def _alerts(alerts: Sequence[AlertLine], many: int, now: datetime) -> list[RenderableType]:
    rows: list[RenderableType] = []
    for each in alerts:
        seen = each.acknowledged is not None
        line = paint.text("! ", "dim" if seen else "bold red")
        line.append(paint.line(each.message), "dim" if seen else "")
        line.append(f"  {paint.age(each.raised, now)}{', seen to' if seen else ''}", "dim")
        rows.append(line)
    return [*rows, *_rest(many - len(rows), "alert")]


def _queues(queues: Sequence[QueueSight], roomy: bool) -> Table:
    columns = ["queue", "ready", "oldest", "jobs/s", "failed/s", "waited", "workers"]
    if roomy:
        columns.insert(5, "retried/s")
    table = paint.table(*columns, right=columns[1:], free=("queue",))
    for each in queues:
        nobody = each.workers == 0
        cells = {
            "queue": paint.text(each.queue),
            "ready": paint.text(f"{'' if each.exact else '~'}{paint.number(each.ready)}"),
            "oldest": paint.text(paint.span(each.oldest) if each.ready else ""),
            "jobs/s": paint.text(_speed(each.ended)),
            "failed/s": paint.text(_speed(each.failed), "red" if each.failed else "dim"),
            "retried/s": paint.text(_speed(each.retried), "yellow" if each.retried else "dim"),
            "waited": paint.text(paint.span(each.waited)),
            "workers": paint.text("paused", "yellow")
            if each.paused
            else paint.text(each.workers or "none", "bold red" if nobody and each.ready else ""),
        }
        table.add_row(*(cells[name] for name in columns))
    return table


def _workers(workers: Sequence[WorkerDetail], sight: Sight, roomy: bool) -> Table:
    columns = ["worker", "state", "host", "process", "busy", "running", "beat", "lag"]
    if roomy:
        columns += ["version", "queues"]
    table = paint.table(
        *columns,
        right=("worker", "process", "running", "beat", "lag"),
        free=("host", "version", "queues"),
    )
    for each in workers:
        late = (sight.at - each.beat).total_seconds() > sight.patience
        state = "silent" if late else each.state
        style = {"active": "green", "draining": "cyan", "silent": "bold yellow"}.get(state, "")
        cells = {
            "worker": paint.text(each.worker),
            "state": paint.text(state, style),
            "host": paint.text(each.host),
            "process": paint.text(each.pid),
            "busy": _bar(each.running, each.capacity),
            "running": paint.text(f"{each.running}/{each.capacity}"),
            "beat": paint.text(paint.age(each.beat, sight.at)),
            "lag": paint.text(paint.span(each.lag) if each.lag >= 0.1 else "", "yellow"),
            "version": paint.text(each.version),
            "queues": paint.text(", ".join(each.queues), "dim"),
        }
        table.add_row(*(cells[name] for name in columns))
    if not workers:
        table.add_row("", paint.text("no worker is there", "yellow"))
    return table


def _bar(done: int, total: int) -> Text:
    full = round(BAR * min(done / total, 1)) if total else 0
    full = max(full, 1) if done else 0
    bar = paint.text("■" * full, "cyan")
    bar.append("·" * (BAR - full), "dim")
    return bar


def _runs(runs: Sequence[RunLine], now: datetime) -> Table:
    table = paint.table(
        "run",
        "what",
        "worker",
        "for",
        "progress",
        right=("run", "worker", "for"),
        free=("what", "progress"),
    )
    for each in runs:
        name = f"{each.name} (flow)" if each.is_flow else each.name
        done = ""
        if each.done is not None:
            whole = f" of {each.total:g}" if each.total else ""
            done = f"{each.done:g}{whole} {each.note or ''}"
        table.add_row(
            paint.text(each.run),
            paint.text(name),
            paint.text(each.worker),
            paint.text(paint.age(each.since, now)),
            paint.text(paint.line(done), "dim"),
        )
    if not runs:
        table.add_row("", paint.text("nothing runs", "dim"))
    return table


def _speed(value: float) -> str:
    if value >= 100:
        return paint.number(round(value))
    return f"{value:.1f}" if value >= 0.05 else "0"
