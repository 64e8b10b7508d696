"""Formatting of schedules, for a list and in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import output

if TYPE_CHECKING:
    from rich.text import Text

    from rota.model.schedule_view import Schedule, Tick

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


def state_cell(schedule: Schedule, *, has_workers: bool) -> Text:
    """Return the state; `unknown` if there are workers but none knows the target."""
    if _lacks_worker(schedule, has_workers=has_workers):
        return output.cell("unknown", "yellow")
    has_problem = schedule.state == "active" and schedule.reason
    return output.cell(
        schedule.state, "yellow" if has_problem else STATE_STYLES.get(schedule.state, "")
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


def last_tick_cell(schedule: Schedule, now: datetime) -> Text:
    if schedule.last is None:
        return output.cell("")
    outcome = tick_outcome(schedule.last)
    return output.cell(
        f"{outcome} {output.format_age(schedule.last.handled, now)} ago", _outcome_style(outcome)
    )


def next_tick_cell(schedule: Schedule, now: datetime) -> Text:
    if not schedule.next:
        return output.cell("")
    next_tick = schedule.next[0]
    return output.cell("due" if next_tick <= now else f"in {output.format_age(now, next_tick)}")


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
        _print_ticks(schedule, ticks)
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
    yield "runs", f"{format_runs(schedule.runs)} by the clock{missed}"
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
        yield "at most", format_runs(schedule.max_runs)
    if schedule.pause_after is not None:
        yield "pauses", f"after {schedule.pause_after} failures in a row"


def format_runs(count: int) -> str:
    return "1 run" if count == 1 else f"{output.format_count(count)} runs"


def _format_ago(time: datetime, now: datetime) -> str:
    return f"{output.format_time(time)}, {output.format_age(time, now)} ago"


def _print_next_ticks(schedule: Schedule, now: datetime) -> None:
    rows = [(_format_local(schedule, each), _format_utc(each), each) for each in schedule.next]
    differs = any(local != utc for local, utc, _ in rows)
    grid = output.new_table("next ticks", *(["in UTC"] if differs else []), "", right=("",))
    for local, utc, each in rows:
        grid.add_row(
            output.cell(local),
            *([output.cell(utc, "dim")] if differs else []),
            output.cell("due" if each <= now else f"in {output.format_age(now, each)}"),
        )
    output.print_renderable(grid)


def _print_ticks(schedule: Schedule, ticks: Sequence[Tick]) -> None:
    columns = {
        "tick": [output.cell(_format_local(schedule, each.planned)) for each in ticks],
        "late by": [_late_by_cell(each) for each in ticks],
        "run": [output.cell(each.run) for each in ticks],
        "outcome": [
            output.cell(tick_outcome(each), _outcome_style(tick_outcome(each))) for each in ticks
        ],
        "duration": [output.cell(output.format_duration(each.seconds)) for each in ticks],
        "instance": [output.wrapped_cell(f"{each.host}:{each.pid}") for each in ticks],
        "": [output.wrapped_cell(_remark(each)) for each in ticks],
    }
    shown = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    grid = output.new_table(*shown, right=("late by", "run", "duration"), free=("instance", ""))
    for cells in zip(*shown.values(), strict=True):
        grid.add_row(*cells)
    output.print_renderable(grid)


def _late_by_cell(tick: Tick) -> Text:
    """Return the delay; empty for runs that were started manually."""
    if tick.backfilled or tick.reason == "by hand":
        return output.cell("")
    return output.cell(output.format_duration(max(tick.late_seconds, 0.0)))


def _remark(tick: Tick) -> str:
    words = ["backfilled"] if tick.backfilled else []
    if tick.reason:
        words.append(tick.reason)
    return ", ".join(words)
