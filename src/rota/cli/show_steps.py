"""What a job's own code has come to: its steps as a timeline, what was said to it, what it says."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.cli import paint
from rota.cli.waits import moment

if TYPE_CHECKING:
    from rich.text import Text

    from rota.store.database import Database
    from rota.store.timeline import LogLine, ProgressLine, SignalLine, StepLine, WaitLine

STEPS = 40
"""Steps that are shown, the last ones; --all shows each."""
LINES = 20
"""Lines of the log."""


class Durable(msgspec.Struct, frozen=True):
    """What there is to say about one job's own code."""

    steps: list[StepLine]
    waits: list[WaitLine]
    signals: list[SignalLine]
    progress: ProgressLine | None
    logs: list[LogLine]

    def documents(self) -> dict[str, Any]:
        steps = [paint.fields(each, stored=("result", "error")) for each in self.steps]
        logs = [paint.fields(each) for each in self.logs]
        for each in (*steps, *logs):
            each.pop("brief", None)
            each.pop("of")
        return {
            "steps": steps,
            "signals": signal_documents(self.signals),
            "progress": None if self.progress is None else paint.fields(self.progress),
            "logs": logs,
        }


def signal_documents(signals: list[SignalLine]) -> list[dict[str, Any]]:
    found = [paint.fields(each, stored=("payload",)) for each in signals]
    for each in found:
        del each["brief"]
    return found


async def durable(
    database: Database, job: int, run: int, *, every: bool, whole: bool = False
) -> Durable:
    """`every` step and line, not only the last ones; `whole`: with all that they returned."""
    from rota.store import timeline

    limits = (timeline.ALL, timeline.ALL) if every else (STEPS, LINES)
    steps = await database.run(timeline.steps(job, limits[0], whole=whole))
    logs = await database.run(timeline.logs(job, limits[1]))
    waits = await database.run(timeline.waits(job))
    signals = await database.run(timeline.signals(run, whole=whole))
    if job != run:
        signals = [each for each in signals if job in each.jobs]
    progress = await database.one(timeline.progress(job))
    return Durable(steps[::-1], waits, signals, progress, logs[::-1])


def print_steps(durable: Durable, now: datetime, *, is_over: bool) -> None:
    steps = durable.steps
    if not steps:
        return
    tried = any(each.tries > 1 for each in steps)
    sent = {each.name for each in durable.signals if each.at is not None}
    table = paint.table(
        "kind",
        "name",
        "at",
        "took",
        *(["tries"] if tried else []),
        "came to",
        right=("took", "tries"),
        free=("name", "came to"),
    )
    for each in steps:
        table.add_row(
            paint.text(each.kind, "dim"),
            paint.text(_name(each), "dim" if each.kind in ("value", "version") else ""),
            paint.text(moment(each.at, now)),
            paint.text(paint.span(each.took) if each.kind == "step" else ""),
            *([paint.text(each.tries, "" if each.tries > 1 else "dim")] if tried else []),
            _came_to(each, now, is_over=is_over, is_sent=each.name in sent),
        )
    paint.console().print()
    paint.show(table)
    _tell_of_more(len(steps), steps[0].of, "step")


def _name(step: StepLine) -> str:
    """Sleeps have none."""
    name = "" if step.kind == "sleep" else paint.line(step.name)
    return name if step.number == 1 else f"{name} no. {step.number}".lstrip()


def _came_to(step: StepLine, now: datetime, *, is_over: bool, is_sent: bool) -> Text:
    if step.kind == "sleep" and step.until is not None:
        awake = is_over or step.until <= now
        return paint.text(f"until {moment(step.until, now)}", "dim" if awake else "blue")
    if step.open:
        return _came_to_nothing(step, now, is_over=is_over, is_sent=is_sent)
    if step.kind == "wait" and step.error is not None:
        return _unsent()
    if step.error is not None:
        return paint.text(f"failed: {paint.summary(step.error)}", "red")
    return paint.text(_short(step.brief), "dim" if step.kind in ("value", "version") else "")


def _came_to_nothing(step: StepLine, now: datetime, *, is_over: bool, is_sent: bool) -> Text:
    until = "" if step.until is None else moment(step.until, now)
    if step.kind != "wait":
        error = paint.summary(step.error)
        coming = step.until is not None and step.until > now and not is_over
        return paint.text(
            f"next try {until}, after {error}" if coming else f"failed: {error}", "red"
        )
    if is_sent:
        return paint.text("sent, and not heard yet", "blue")
    if step.until is not None and step.until <= now:
        return _unsent()
    if is_over:
        return paint.text("nobody waits for it any more", "dim")
    return paint.text(f"waits until {until}" if until else "waits", "blue")


def _unsent() -> Text:
    return paint.text("nobody sent it in time", "yellow")


def _short(brief: str | None) -> str:
    return "" if brief is None else paint.line(brief)


def print_signals(signals: list[SignalLine], now: datetime) -> None:
    """What was said; what is waited for stands among the steps."""
    said = [each for each in signals if each.at is not None]
    if not said:
        return
    table = paint.table("signal", "sent", "says", free=("signal", "says"))
    for each in said:
        if each.at is not None:
            table.add_row(
                paint.text(paint.line(each.name)),
                paint.text(moment(each.at, now)),
                paint.text(_short(each.brief)),
            )
    paint.console().print()
    paint.show(table)


def print_logs(logs: list[LogLine], now: datetime) -> None:
    from rota.store.timeline import COUNTED

    if not logs:
        return
    tried = any(each.attempt != logs[0].attempt for each in logs)
    lines: list[str] = []
    for each in logs:
        head = moment(each.at, now)
        if tried:
            head += f"  attempt {each.attempt}"
        first, *rest = each.message.splitlines() or [""]
        lines += [f"{head}  {first}", *(f"{' ' * len(head)}  {more}" for more in rest)]
    paint.block("log", "\n".join(lines))
    _tell_of_more(len(logs), logs[0].of, "line", at_least=logs[0].of >= COUNTED)


def _tell_of_more(shown: int, there: int, what: str, *, at_least: bool = False) -> None:
    more = there - shown
    if more > 0:
        many = f"1 {what}" if more == 1 else f"{paint.number(more)} {what}s"
        many = f"at least {many}" if at_least else many
        paint.say(f"and {many} before; --all shows them", "dim")
