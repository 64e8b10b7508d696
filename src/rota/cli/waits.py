"""What a job waits for, and how far it is: in words, and as a bar."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import paint
from rota.model.replay import label

if TYPE_CHECKING:
    from rota.store.timeline import ProgressLine, WaitLine
    from rota.store.views import JobLine, RunLine

BAR = 20
"""Letters of a whole bar."""

ENDED = ("succeeded", "failed", "cancelled", "expired", "skipped")


def brief(line: RunLine | JobLine, now: datetime) -> str:
    """In a few words, for a list: what it waits for, how far it is. Of what has ended, nothing."""
    if line.state in ENDED:
        return ""
    words: list[str] = []
    if line.awaits:
        words.append(f"waits for {signals(line.awaits)}")
    if line.wakes is not None:
        words.append(f"until {moment(line.wakes, now)}")
    if line.done is not None:
        words.append(share(line.done, line.total))
    return ", ".join(words)


def reasons(waits: Sequence[WaitLine], now: datetime) -> str:
    """What a job that sleeps waits for, the whole of it: its branches may wait for different things."""
    return "; ".join(_reason(each, now) for each in waits)


def _reason(wait: WaitLine, now: datetime) -> str:
    until = "" if wait.until is None else f"until {_when(wait.until, now)}"
    match wait.kind:
        case "wait":
            return f"it waits for signal {wait.name!r}, {until or 'however long that takes'}"
        case "sleep":
            return f"it sleeps {until}"
        case _:
            times = "once" if wait.tries == 1 else f"{wait.tries} times"
            what = label(wait.kind, wait.name, wait.number)
            return f"{what} failed {times}, the next try waits: {until}"


def _when(then: datetime, now: datetime) -> str:
    if then <= now:
        return f"{paint.clock(then)}, which has come: a worker will wake it"
    return f"{paint.clock(then)}, in {paint.span((then - now).total_seconds())}"


def signals(names: Sequence[str]) -> str:
    word = "signal" if len(names) == 1 else "signals"
    return f"{word} {' or '.join(map(repr, names))}"


def moment(then: datetime, now: datetime) -> str:
    """A time where the reader is, as short as it can be said."""
    here = then.astimezone()
    if here.date() == now.astimezone().date():
        return here.strftime("%H:%M:%S")
    return here.strftime("%Y-%m-%d %H:%M")


def share(done: float, total: float | None) -> str:
    """`40 %`; of what has no end, or none that makes sense, only how much is done."""
    part = _part(done, total)
    return f"{_amount(done)} done" if part is None else f"{math.floor(part * 100)} %"


def bar(progress: ProgressLine, now: datetime) -> str:
    """`████████░░░░░░░░░░░░ 40 %, 4 of 10, 3 s ago: a note`."""
    words = share(progress.done, progress.total)
    part = _part(progress.done, progress.total)
    if part is not None and progress.total is not None:
        full, empty = ("█", "░") if _is_shown("█░") else ("#", ".")
        length = math.floor(part * BAR)
        drawn = f"{full * length}{empty * (BAR - length)}"
        words = f"{drawn} {words}, {_amount(progress.done)} of {_amount(progress.total)}"
    words += f", {paint.age(progress.at, now)} ago"
    return f"{words}: {paint.line(progress.note)}" if progress.note else words


def _part(done: float, total: float | None) -> float | None:
    if total is None or not (math.isfinite(done) and math.isfinite(total)) or total <= 0:
        return None
    return min(max(done / total, 0.0), 1.0)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"


def _is_shown(letters: str) -> bool:
    try:
        letters.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
