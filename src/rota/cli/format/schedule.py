"""Formatting of schedules, for a list and in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import rich_click as click

from rota.cli import output
from rota.cli.table import WIDE, Column, Table
from rota.model.text import counted

if TYPE_CHECKING:
    from rich.text import Text

    from rota.model.schedule_view import Schedule, Tick

EXTRA_WIDE = 150
"""Terminal width from which reasons fit."""

STATE_STYLES = {"active": "green", "paused": "yellow", "disabled": "dim", "ended": "dim"}

TICK_STYLES = {
    "running": "cyan",
    "queued": "blue",
    "skipped": "dim",
    "missed": "yellow",
    "refused": "red",
}


def format_timetable(schedule: Schedule, *, two_lines: bool = False) -> str:
    """Return the timetable as text; with `two_lines`, the zone is on a second line."""
    every = schedule.every
    if every is not None:
        return f"every {f'{every:g} s' if every < 60 else output.format_duration(every)}"
    if schedule.at is not None:
        date, time, zone = _format_local(schedule, schedule.at).split()
        return f"once, {date}\n{time} {zone}" if two_lines else f"once, {date} {time} {zone}"
    return schedule.when.replace(" (", "\n(", 1) if two_lines else schedule.when


def format_target(schedule: Schedule) -> str:
    return schedule.target if schedule.kind == "task" else f"{schedule.kind} {schedule.target}"


# List


def print_schedules(found: Sequence[Schedule], has_workers: bool, now: datetime) -> None:
    """Print a table. On a narrow terminal, reasons are printed below it."""
    width = output.console().width

    def reason(schedule: Schedule, now: datetime) -> str:
        return state_reason(schedule, has_workers=has_workers)

    def state(schedule: Schedule, now: datetime) -> str:
        """Return the state; `unknown` if there are workers but none knows the target."""
        is_unknown = _lacks_worker(schedule, has_workers=has_workers)
        return "unknown" if is_unknown else schedule.state

    def state_style(schedule: Schedule) -> str:
        if schedule.state == "active" and (schedule.reason or state(schedule, now) == "unknown"):
            return "yellow"
        return STATE_STYLES.get(schedule.state, "")

    columns: list[Column[Schedule]] = [
        Column("schedule", lambda row, now: row.name, wraps=True),
        Column("tenant", lambda row, now: row.tenant, wraps=True),
        Column("when", lambda row, now: format_timetable(row, two_lines=width < WIDE)),
        Column("target", lambda row, now: format_target(row), wraps=True),
        Column("state", state, state_style),
        Column("last", _last_tick, _last_tick_style),
        Column("next", _next_tick, right=True),
        Column("reason", reason, wraps=True),
    ]
    hidden = {"tenant": WIDE, "reason": EXTRA_WIDE}
    Table(*(each for each in columns if hidden.get(each.title, 0) <= width)).print(found, now)
    reasons = [(each, reason(each, now)) for each in found if width < EXTRA_WIDE]
    if any(text for _, text in reasons):
        click.echo()
    for each, text in reasons:
        if text:
            style = "yellow" if each.state != "disabled" else "dim"
            output.print_text(f"{each.name}: {text}", style)
    if not has_workers:
        click.echo()
        output.print_text(
            "no worker is running, so no tick starts a run; start one with `rota worker MODULE:APP`",
            "yellow",
        )


def state_reason(schedule: Schedule, *, has_workers: bool) -> str:
    """Return the reason for a state other than active, or for failures."""
    if _lacks_worker(schedule, has_workers=has_workers):
        return no_worker_message(schedule)
    if schedule.reason is None and schedule.failures > 1:
        return f"{schedule.failures} failures in a row"
    return schedule.reason or ""


def _lacks_worker(schedule: Schedule, *, has_workers: bool) -> bool:
    return schedule.state == "active" and has_workers and not schedule.has_worker


def no_worker_message(schedule: Schedule) -> str:
    if schedule.kind == "action":
        return f"no worker knows action {schedule.target!r}"
    return f"no worker knows its {schedule.kind}"


def _last_tick(schedule: Schedule, now: datetime) -> str:
    if schedule.last is None:
        return ""
    return f"{tick_outcome(schedule.last)} {output.format_age(schedule.last.handled, now)} ago"


def _last_tick_style(schedule: Schedule) -> str:
    return "" if schedule.last is None else _outcome_style(tick_outcome(schedule.last))


def _next_tick(schedule: Schedule, now: datetime) -> str:
    return _format_due(schedule.next[0], now) if schedule.next else ""


def _format_due(time: datetime, now: datetime) -> str:
    return "due" if time <= now else f"in {output.format_age(now, time)}"


def tick_outcome(tick: Tick) -> str:
    """Return the outcome of a tick in one word."""
    if tick.run is None:
        return tick.state
    return tick.outcome or ("running" if tick.ended is None else "ended")


def _outcome_style(outcome: str) -> str:
    return TICK_STYLES.get(outcome) or output.STATE_STYLES.get(outcome, "")


def _format_local(schedule: Schedule, time: datetime) -> str:
    """Return a time in the schedule's zone, or in UTC if this machine does not know the zone."""
    from rota.errors import ArgumentError
    from rota.model.timetable import load_zone

    try:
        return time.astimezone(load_zone(schedule.tz)).strftime("%Y-%m-%d %H:%M:%S %Z")
    except ArgumentError:
        return _format_utc(time)


def _format_utc(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# Details of one schedule


def print_schedule(
    schedule: Schedule, ticks: Sequence[Tick], has_workers: bool, now: datetime
) -> None:
    console = output.console()
    console.print(
        output.cell(f"schedule {schedule.name}", "bold"),
        output.cell(schedule.state, STATE_STYLES.get(schedule.state, "")),
        end="\n\n",
    )
    output.print_renderable(output.property_table(_properties(schedule, has_workers, now)))
    if schedule.input:
        title = "config" if schedule.kind == "action" else "input"
        output.print_block(title, output.format_json(msgspec.json.encode(schedule.input)))
    if schedule.next:
        console.print()
        _print_next_ticks(schedule, now)
    console.print()
    if ticks:
        _print_ticks(schedule, ticks, now)
    else:
        output.print_text("it has had no tick yet")


def _properties(
    schedule: Schedule, has_workers: bool, now: datetime
) -> Iterator[tuple[str, Text | str]]:
    yield "target", f"{schedule.kind} {schedule.target}"
    yield "when", format_timetable(schedule)
    if not has_workers:
        yield "workers", output.cell("none is running, so it starts no runs", "yellow")
    elif not schedule.has_worker:
        yield (
            "workers",
            output.cell(f"{no_worker_message(schedule)}, so it starts no runs", "yellow"),
        )
    if schedule.reason:
        yield "reason", output.cell(schedule.reason, STATE_STYLES.get(schedule.state, ""))
    if _is_ahead_of_clock(schedule, now):
        yield (
            "clock",
            output.cell(
                "the clock was set back; resume the schedule to restart it from now", "yellow"
            ),
        )
    yield (
        "defined",
        f"{'in code' if schedule.declared else 'at run time'}, {_format_ago(schedule.created, now)}",
    )
    if schedule.tenant:
        yield "tenant", schedule.tenant
    if schedule.queue:
        yield "queue", schedule.queue
    yield from _policy_properties(schedule)
    missed = f", {output.format_count(schedule.missed)} ticks missed" if schedule.missed else ""
    yield "runs", f"{counted(schedule.runs, 'run')} by the clock{missed}"
    if schedule.last_success:
        yield "last success", _format_ago(schedule.last_success, now)
    if schedule.last_failure:
        yield "last failure", _format_ago(schedule.last_failure, now)
    if schedule.failures:
        yield "failures", output.cell(f"{schedule.failures} in a row", "red")


def _is_ahead_of_clock(schedule: Schedule, now: datetime) -> bool:
    from rota.model.schedule import SchedulePosition, is_ahead_of_clock
    from rota.model.schedule_options import SchedulePolicy
    from rota.model.timetable import Timetable

    if schedule.state != "active" or not schedule.next:
        return False
    timetable = Timetable(schedule.cron, schedule.tz, schedule.every, schedule.at)
    policy = SchedulePolicy(starts=schedule.starts, ends=schedule.ends)
    # Ticks of `every` are equidistant: any of them can be the anchor.
    next_tick = schedule.next[0]
    return is_ahead_of_clock(timetable, policy, SchedulePosition(next_tick, next_tick), now)


def _policy_properties(schedule: Schedule) -> Iterator[tuple[str, str]]:
    yield "overlap", schedule.overlap
    limit = f", {schedule.at_most} at most" if schedule.catch_up == "all" else ""
    yield "catch up", f"{schedule.catch_up}{limit}"
    if schedule.grace is not None:
        yield "grace", output.format_duration(schedule.grace)
    if schedule.jitter:
        yield "jitter", f"up to {output.format_duration(schedule.jitter)}"
    if schedule.starts:
        yield "from", _format_local(schedule, schedule.starts)
    if schedule.ends:
        yield "until", _format_local(schedule, schedule.ends)
    if schedule.max_runs is not None:
        yield "at most", counted(schedule.max_runs, "run")
    if schedule.pause_after is not None:
        yield "pauses", f"after {schedule.pause_after} failures in a row"


def _format_ago(time: datetime, now: datetime) -> str:
    return f"{output.format_time(time)}, {output.format_age(time, now)} ago"


def _print_next_ticks(schedule: Schedule, now: datetime) -> None:
    def utc(tick: datetime, now: datetime) -> str:
        return _format_utc(tick) if differs else ""

    differs = any(_format_local(schedule, each) != _format_utc(each) for each in schedule.next)
    Table["datetime"](
        Column("next ticks", lambda tick, now: _format_local(schedule, tick)),
        Column("in UTC", utc, "dim"),
        Column("", _format_due, right=True),
    ).print(schedule.next, now)


def _print_ticks(schedule: Schedule, ticks: Sequence[Tick], now: datetime) -> None:
    Table["Tick"](
        Column("tick", lambda tick, now: _format_local(schedule, tick.planned)),
        Column("late by", _late_by, right=True),
        Column("run", lambda tick, now: tick.run, right=True),
        Column(
            "outcome",
            lambda tick, now: tick_outcome(tick),
            lambda tick: _outcome_style(tick_outcome(tick)),
        ),
        Column("duration", lambda tick, now: output.format_duration(tick.seconds), right=True),
        Column("instance", lambda tick, now: f"{tick.host}:{tick.pid}", wraps=True),
        Column("", _remark, wraps=True),
    ).print(ticks, now)


def _late_by(tick: Tick, now: datetime) -> str:
    """Return the delay; empty for runs that were started manually."""
    if tick.backfilled or tick.reason == "by hand":
        return ""
    return output.format_duration(max(tick.late_seconds, 0.0))


def _remark(tick: Tick, now: datetime) -> str:
    return ", ".join([*(["backfilled"] if tick.backfilled else []), *filter(None, [tick.reason])])
