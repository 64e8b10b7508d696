"""Invariants of durable functions: I19 to I23."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .durable import SIGNALS
from .evidence import Evidence, JournalWrite, Violation

EARLY = 0.05
"""Seconds by which two clocks of one machine may differ."""

OUTSIDE = ("do ", "do")
"""Name prefixes of the steps that write nothing."""


def step_effects_once(evidence: Evidence) -> Iterator[Violation]:
    """I19: a recorded step wrote once, in the transaction that recorded it.

    A step without a record wrote nothing.
    """
    kept = {(each.job, each.name): each for each in _closed(evidence)}
    found: set[tuple[int, str]] = set()
    for effect in evidence.step_effects:
        key = (effect.job, effect.step)
        where = f"step {effect.step!r} of job {effect.job}"
        if key in found:
            yield Violation("I19", f"{where} wrote twice")
        found.add(key)
        if key not in kept:
            yield Violation("I19", f"{where} wrote, and was not kept")
        elif kept[key].tx != effect.tx or kept[key].result != effect.value:
            yield Violation("I19", f"{where} wrote {effect.value}, kept was {kept[key].result}")
    for job, name in sorted(kept.keys() - found):
        if not name.startswith(OUTSIDE):
            yield Violation("I19", f"step {name!r} of job {job} was kept, and wrote nothing")


def steps_recorded_once(evidence: Evidence) -> Iterator[Violation]:
    """I20: a step is recorded once, and its record does not change."""
    seen: set[tuple[int, str]] = set()
    for each in _closed(evidence):
        if each.again or (each.job, each.name) in seen:
            yield Violation("I20", f"step {each.name!r} of job {each.job} was kept again")
        seen.add((each.job, each.name))


def values_as_recorded(evidence: Evidence) -> Iterator[Violation]:
    """I21: every worker gives the code the recorded values only, and the result consists of them."""
    kept = {(each.job, each.name): each.result for each in _closed(evidence)}
    given: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for line in evidence.lines:
        if line.what != "given":
            continue
        step, value = line.said["step"], line.said["value"]
        if kept.get((line.job, step), value) != value:
            was = kept[line.job, step]
            yield Violation("I21", f"job {line.job} was given {value} at {step!r}, kept was {was}")
        elif given[line.job].setdefault(step, value) != value:
            yield Violation("I21", f"job {line.job} was given two values at {step!r}")
    for job, result in evidence.results.items():
        told = set(given[job].values()) | {""}
        for value in result[1:]:  # the first value is the function's own and is not noted
            if value not in told:
                yield Violation("I21", f"job {job} came to {value}, which it was never given")


def no_signal_lost(evidence: Evidence) -> Iterator[Violation]:
    """I22: a signal with an answered send was received or is still stored; none was received unsent.

    A run that restarts forgets received signals, so they can be sent again.
    """
    heard: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    tried: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    sent: set[tuple[int, str, str]] = set()
    for line in evidence.lines:
        if line.what == "signal":
            key = (line.job, line.said["name"])
            tried[key].add(line.said["payload"])
            if line.said["answer"] == "sent":
                sent.add((*key, line.said["payload"]))
        elif line.what == "given" and (name := line.said["step"].split()[0]) in SIGNALS:
            heard[line.job, name].add(line.said["value"])
    for run, name, payload in sorted(sent):
        if payload not in heard[run, name] and evidence.signals.get((run, name)) != payload:
            yield Violation("I22", f"signal {name!r} to run {run} was sent, and is lost: {payload}")
    for (run, name), payloads in heard.items():
        for payload in payloads - tried[run, name] - {""}:
            yield Violation("I22", f"run {run} heard {payload} as {name!r}, which nobody sent")


def no_step_before_sleep_ends(evidence: Evidence) -> Iterator[Violation]:
    """I23: no step runs before a sleep has ended."""
    until: dict[int, float] = {}
    for each in evidence.kept:
        if each.kind == "sleep" and each.until is not None:
            until[each.job] = each.until
        elif each.kind == "step" and not each.open and each.at < until.get(each.job, 0) - EARLY:
            early = until[each.job] - each.at
            yield Violation("I23", f"step {each.name!r} of job {each.job} came {early:.2f} s early")


def _closed(evidence: Evidence) -> Iterator[JournalWrite]:
    return (each for each in evidence.kept if each.kind == "step" and not each.open)


CHECKS = (
    step_effects_once,
    steps_recorded_once,
    values_as_recorded,
    no_signal_lost,
    no_step_before_sleep_ends,
)
