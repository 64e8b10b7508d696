"""How a schedule is shown: in a line of a list, and whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.cli import paint

if TYPE_CHECKING:
    from rich.text import Text

    from rota.model.agenda import Schedule, Tick

STATES = {"active": "green", "paused": "yellow", "disabled": "dim", "ended": "dim"}

TICKS = {
    "running": "cyan",
    "queued": "blue",
    "skipped": "dim",
    "missed": "yellow",
    "refused": "red",
}


def document(value: Schedule | Tick) -> dict[str, Any]:
    """For programs: what there is to know, and what follows from it."""
    from rota.model.agenda import Tick

    found = msgspec.structs.asdict(value)
    if isinstance(value, Tick):
        return {**found, "started": value.started, "late": value.late, "took": value.took}
    found["last"] = None if value.last is None else document(value.last)
    return {**found, "when": value.when}


def when(schedule: Schedule, *, below: bool = False) -> str:
    """`below`: the zone on a line of its own."""
    every = schedule.every
    if every is not None:
        return f"every {f'{every:g} s' if every < 60 else paint.span(every)}"
    if schedule.at is not None:
        date, time, zone = _local(schedule, schedule.at).split()
        return f"once, {date}\n{time} {zone}" if below else f"once, {date} {time} {zone}"
    return schedule.when.replace(" (", "\n(", 1) if below else schedule.when


def state(schedule: Schedule, *, manned: bool) -> Text:
    """Where there are workers, and none knows what it starts, that is what counts."""
    if _is_strange(schedule, manned=manned):
        return paint.text("unknown", "yellow")
    trouble = schedule.state == "active" and schedule.why
    return paint.text(schedule.state, "yellow" if trouble else STATES.get(schedule.state, ""))


def why(schedule: Schedule, *, manned: bool) -> str:
    """… it is not simply active."""
    if _is_strange(schedule, manned=manned):
        return nobody_knows(schedule)
    if schedule.why is None and schedule.failures > 1:
        return f"{schedule.failures} failures in a row"
    return schedule.why or ""


def _is_strange(schedule: Schedule, *, manned: bool) -> bool:
    return schedule.state == "active" and manned and not schedule.known


def nobody_knows(schedule: Schedule) -> str:
    if schedule.kind == "action":
        return f"nobody knows action {schedule.target!r}"
    return f"nobody knows its {schedule.kind}"


def last(schedule: Schedule, now: datetime) -> Text:
    if schedule.last is None:
        return paint.text("")
    word = outcome(schedule.last)
    return paint.text(f"{word} {paint.age(schedule.last.seen, now)} ago", _style(word))


def next_in(schedule: Schedule, now: datetime) -> Text:
    if not schedule.next:
        return paint.text("")
    following = schedule.next[0]
    return paint.text("due" if following <= now else f"in {paint.age(now, following)}")


def outcome(tick: Tick) -> str:
    """What became of it, in one word."""
    if tick.run is None:
        return tick.state
    return tick.outcome or ("running" if tick.ended is None else "over")


def _style(word: str) -> str:
    return TICKS.get(word) or paint.STATES.get(word, "")


def _local(schedule: Schedule, moment: datetime) -> str:
    """In the schedule's own zone, if this machine knows it."""
    from rota.errors import ArgumentError
    from rota.model.timetable import zone

    try:
        return moment.astimezone(zone(schedule.tz)).strftime("%Y-%m-%d %H:%M:%S %Z")
    except ArgumentError:
        return _utc(moment)


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# One of them


def print_schedule(schedule: Schedule, ticks: Sequence[Tick], manned: bool, now: datetime) -> None:
    console = paint.console()
    console.print(
        paint.text(f"schedule {schedule.name}", "bold"),
        paint.text(schedule.state, STATES.get(schedule.state, "")),
        end="\n\n",
    )
    paint.show(paint.facts(_facts(schedule, manned, now)))
    if schedule.input:
        title = "config" if schedule.kind == "action" else "input"
        paint.block(title, paint.pretty(msgspec.json.encode(schedule.input)))
    if schedule.next:
        console.print()
        _print_next(schedule, now)
    console.print()
    if ticks:
        _print_ticks(schedule, ticks)
    else:
        paint.say("no tick of it has come yet")


def _facts(schedule: Schedule, manned: bool, now: datetime) -> Iterator[tuple[str, Text | str]]:
    yield "starts", f"{schedule.kind} {schedule.target}"
    yield "when", when(schedule)
    if not manned:
        yield "workers", paint.text("none is there, so it starts nothing", "yellow")
    elif not schedule.known:
        yield "workers", paint.text(f"{nobody_knows(schedule)}, so it starts nothing", "yellow")
    if schedule.why:
        yield "why", paint.text(schedule.why, STATES.get(schedule.state, ""))
    if _is_astray(schedule, now):
        yield (
            "clock",
            paint.text("it has gone back: to have it come again from now on, resume it", "yellow"),
        )
    yield (
        "defined",
        f"{'in code' if schedule.declared else 'at run time'}, {_ago(schedule.created, now)}",
    )
    if schedule.tenant:
        yield "tenant", schedule.tenant
    if schedule.queue:
        yield "queue", schedule.queue
    yield from _policies(schedule)
    missed = f", {paint.number(schedule.missed)} ticks missed" if schedule.missed else ""
    yield "so far", f"{runs_of(schedule.runs)} by the clock{missed}"
    if schedule.last_success:
        yield "last success", _ago(schedule.last_success, now)
    if schedule.last_failure:
        yield "last failure", _ago(schedule.last_failure, now)
    if schedule.failures:
        yield "failures", paint.text(f"{schedule.failures} in a row", "red")


def _is_astray(schedule: Schedule, now: datetime) -> bool:
    from rota.model.schedule import Policy, Position, is_astray
    from rota.model.timetable import Timetable

    if schedule.state != "active" or not schedule.next:
        return False
    timetable = Timetable(schedule.cron, schedule.tz, schedule.every, schedule.at)
    policy = Policy(starts=schedule.starts, ends=schedule.ends)
    # `every` is a lattice: any of its ticks may be counted from.
    next = schedule.next[0]
    return is_astray(timetable, policy, Position(next, next), now)


def _policies(schedule: Schedule) -> Iterator[tuple[str, str]]:
    yield "overlap", schedule.overlap
    most = f", {schedule.at_most} at most" if schedule.catch_up == "all" else ""
    yield "catch up", f"{schedule.catch_up}{most}"
    if schedule.grace is not None:
        yield "grace", paint.span(schedule.grace)
    if schedule.jitter:
        yield "jitter", f"up to {paint.span(schedule.jitter)}"
    if schedule.starts:
        yield "from", _local(schedule, schedule.starts)
    if schedule.ends:
        yield "until", _local(schedule, schedule.ends)
    if schedule.max_runs is not None:
        yield "at most", runs_of(schedule.max_runs)
    if schedule.pause_after is not None:
        yield "pauses", f"after {schedule.pause_after} failures in a row"


def runs_of(count: int) -> str:
    return "1 run" if count == 1 else f"{paint.number(count)} runs"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{paint.clock(moment)}, {paint.age(moment, now)} ago"


def _print_next(schedule: Schedule, now: datetime) -> None:
    rows = [(_local(schedule, each), _utc(each), each) for each in schedule.next]
    elsewhere = any(local != utc for local, utc, _ in rows)
    table = paint.table("next ticks", *(["in UTC"] if elsewhere else []), "", right=("",))
    for local, utc, each in rows:
        table.add_row(
            paint.text(local),
            *([paint.text(utc, "dim")] if elsewhere else []),
            paint.text("due" if each <= now else f"in {paint.age(now, each)}"),
        )
    paint.show(table)


def _print_ticks(schedule: Schedule, ticks: Sequence[Tick]) -> None:
    columns = {
        "tick": [paint.text(_local(schedule, each.planned)) for each in ticks],
        "late": [_late(each) for each in ticks],
        "run": [paint.text(each.run) for each in ticks],
        "outcome": [paint.text(outcome(each), _style(outcome(each))) for each in ticks],
        "took": [paint.text(paint.span(each.took)) for each in ticks],
        "by": [paint.whole(f"{each.host}:{each.pid}") for each in ticks],
        "": [paint.whole(_remark(each)) for each in ticks],
    }
    told = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    table = paint.table(*told, right=("late", "run", "took"), free=("by", ""))
    for cells in zip(*told.values(), strict=True):
        table.add_row(*cells)
    paint.show(table)


def _late(tick: Tick) -> Text:
    """What was started by hand was not late for anything."""
    if tick.backfilled or tick.why == "by hand":
        return paint.text("")
    return paint.text(paint.span(max(tick.late, 0.0)))


def _remark(tick: Tick) -> str:
    words = ["backfilled"] if tick.backfilled else []
    if tick.why:
        words.append(tick.why)
    return ", ".join(words)
