"""Steps of a job as a timeline, its signals and its log lines."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import output
from rota.cli.format.wait import format_short_time
from rota.cli.table import Column, Table
from rota.model.text import counted, single_line

if TYPE_CHECKING:
    from rich.text import Text

    from rota.store.read.job_detail import LogRow, SignalRow, StepRow

MAX_STEPS = 40
"""Number of latest steps that are shown; --all shows every step."""
MAX_LOG_LINES = 20


def print_steps(
    steps: list[StepRow], signals: list[SignalRow], now: datetime, *, is_finished: bool
) -> None:
    if not steps:
        return
    has_retries = any(each.tries > 1 for each in steps)
    sent = {each.name for each in signals if each.at is not None}
    output.console().print()
    Table["StepRow"](
        Column("kind", lambda row, now: row.kind, "dim"),
        Column("name", lambda row, now: _name(row), _value_style, shrinks=True),
        Column("at", lambda row, now: format_short_time(row.at, now)),
        Column(
            "duration",
            lambda row, now: output.format_duration(row.seconds) if row.kind == "step" else "",
            right=True,
        ),
        Column(
            "tries",
            lambda row, now: row.tries if has_retries else "",
            lambda row: "" if row.tries > 1 else "dim",
            right=True,
        ),
        Column(
            "result",
            lambda row, now: _result_cell(
                row, now, is_finished=is_finished, is_sent=row.name in sent
            ),
            shrinks=True,
        ),
    ).print(steps, now)
    _print_more_hint(len(steps), steps[0].total, "step")


def _value_style(step: StepRow) -> str:
    return "dim" if step.kind in ("value", "version") else ""


def _name(step: StepRow) -> str:
    """Return the name of a step with its number; sleeps have no name."""
    name = "" if step.kind == "sleep" else single_line(step.name)
    return name if step.number == 1 else f"{name} no. {step.number}".lstrip()


def _result_cell(step: StepRow, now: datetime, *, is_finished: bool, is_sent: bool) -> Text:
    if step.kind == "sleep" and step.until is not None:
        has_woken = is_finished or step.until <= now
        return output.cell(
            f"until {format_short_time(step.until, now)}", "dim" if has_woken else "blue"
        )
    if step.open:
        return _open_entry_cell(step, now, is_finished=is_finished, is_sent=is_sent)
    if step.kind == "wait" and step.error is not None:
        return _timed_out_cell()
    if step.error is not None:
        return output.cell(f"failed: {output.error_summary(step.error)}", "red")
    return output.cell(_brief_text(step.result_preview), _value_style(step))


def _open_entry_cell(step: StepRow, now: datetime, *, is_finished: bool, is_sent: bool) -> Text:
    until = "" if step.until is None else format_short_time(step.until, now)
    if step.kind != "wait":
        error = output.error_summary(step.error)
        is_pending = step.until is not None and step.until > now and not is_finished
        return output.cell(
            f"next try {until}, after {error}" if is_pending else f"failed: {error}", "red"
        )
    if is_sent:
        return output.cell("sent, not received yet", "blue")
    if step.until is not None and step.until <= now:
        return _timed_out_cell()
    if is_finished:
        return output.cell("no longer awaited", "dim")
    return output.cell(f"waits until {until}" if until else "waits", "blue")


def _timed_out_cell() -> Text:
    return output.cell("did not arrive before the timeout", "yellow")


def _brief_text(brief: str | None) -> str:
    return "" if brief is None else single_line(brief)


def print_signals(signals: list[SignalRow], now: datetime) -> None:
    """Print the signals that were sent. Open waits are listed among the steps."""
    if sent := [each for each in signals if each.at is not None]:
        output.console().print()
        SIGNALS.print(sent, now)


SIGNALS = Table["SignalRow"](
    Column("signal", lambda row, now: single_line(row.name), shrinks=True),
    Column("sent", lambda row, now: "" if row.at is None else format_short_time(row.at, now)),
    Column("payload", lambda row, now: _brief_text(row.payload_preview), shrinks=True),
)


def print_logs(logs: list[LogRow], now: datetime) -> None:
    from rota.store.read.job_detail import MAX_COUNTED_LINES

    if not logs:
        return
    several_attempts = any(each.attempt != logs[0].attempt for each in logs)
    lines: list[str] = []
    for each in logs:
        head = format_short_time(each.at, now)
        if several_attempts:
            head += f"  attempt {each.attempt}"
        first, *more_lines = each.message.splitlines() or [""]
        lines += [f"{head}  {first}", *(f"{' ' * len(head)}  {more}" for more in more_lines)]
    output.print_block("log", "\n".join(lines))
    _print_more_hint(len(logs), logs[0].total, "line", at_least=logs[0].total >= MAX_COUNTED_LINES)


def _print_more_hint(shown: int, total: int, noun: str, *, at_least: bool = False) -> None:
    more = total - shown
    if more > 0:
        count = counted(more, noun)
        count = f"at least {count}" if at_least else count
        output.print_text(f"and {count} before; --all shows them", "dim")
