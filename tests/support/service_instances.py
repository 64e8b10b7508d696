"""Instances that stand by for monitors and are killed and replaced, and checks on their notes."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.places import PROGRAMS

APP = PROGRAMS / "monitor_app.py"


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Iteration:
    service: str
    number: int
    term: int
    pid: int
    began: float
    ended: float | None = None
    refused: bool = False


@dataclass(slots=True)
class Instance:
    notes: Path
    process: subprocess.Popen[bytes]
    died: float | None = None
    """Last time at which it was known to be alive."""
    is_up: bool = False
    read: int = 0
    iterations: dict[tuple[str, int], Iteration] = field(default_factory=dict)
    ran: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.died is None

    def look(self) -> None:
        """Read the notes written since the last call."""
        with self.notes.open() as file:
            file.seek(self.read)
            text = file.read()
        *lines, _ = text.split("\n")
        self.read += sum(len(line) + 1 for line in lines)
        for line in lines:
            word, at, *rest = line.split()
            if word == "up":
                self.is_up = True
            elif word == "ran":
                self.ran[rest[0], int(rest[1])] = rest[2]
            else:
                self._note(word, float(at), (rest[0], int(rest[1])), int(rest[2]))

    def _note(self, word: str, at: float, key: tuple[str, int], term: int) -> None:
        if word == "begin":
            self.iterations[key] = Iteration(*key, term, self.pid, at)
        elif word == "end":
            self.iterations[key].ended = at
        elif word == "refused":
            self.iterations[key].refused = True


class ServiceInstances:
    def __init__(self, directory: Path, dsn: str, **order: Any) -> None:
        self._directory = directory
        self._order = {"dsn": dsn, "every": 0.5, "lease": 10, "takes": 0.2, "services": ["monitor"]}
        self._order.update(order)
        self.instances: list[Instance] = []

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            notes = self._directory / f"notes-{len(self.instances)}"
            notes.touch()
            order = json.dumps({**self._order, "notes": str(notes)})
            process = subprocess.Popen([sys.executable, str(APP), order])
            self.instances.append(Instance(notes, process))

    @property
    def living(self) -> list[Instance]:
        return [each for each in self.instances if each.lives]

    def look(self) -> list[Iteration]:
        """Return all iterations so far, in the order in which they began."""
        for each in self.instances:
            each.look()
        return sorted(
            (one for each in self.instances for one in each.iterations.values()),
            key=lambda one: one.began,
        )

    def runner(self) -> Instance | None:
        """Return the living instance that began the last iteration, if any."""
        iterations = self.look()
        last = iterations[-1].pid if iterations else None
        return next((each for each in self.living if each.pid == last), None)

    def kill(self, instance: Instance) -> float:
        """Kill it; return the last time at which it was alive."""
        instance.died = now()
        instance.process.kill()
        instance.process.wait()
        return instance.died

    @property
    def all_are_up(self) -> bool:
        self.look()
        return all(each.is_up for each in self.living)

    def stop(self) -> list[int]:
        for each in self.living:
            each.process.send_signal(signal.SIGTERM)
        return [each.process.wait(60) for each in self.living]

    def close(self) -> None:
        for each in self.instances:
            if each.process.poll() is None:
                each.process.kill()
            each.process.wait()


# Checks


def overlaps(iterations: Sequence[Iteration], died: dict[int, float], end: float) -> Iterator[str]:
    """Yield iterations of one service that ran at the same time.

    An iteration without an end counts until its instance was last known to be alive.
    """
    for service in {each.service for each in iterations}:
        before: Iteration | None = None
        latest = 0.0
        for each in (one for one in iterations if one.service == service):
            if before is not None and each.began < latest:
                yield (
                    f"iteration {each.number} of {service} began in {each.pid} while {before.number} ran "
                    f"in {before.pid}, {latest - each.began:.3f} s before that ended"
                )
            ended = died.get(each.pid, end) if each.ended is None else each.ended
            if ended > latest:
                before, latest = each, ended


def misnumbered(iterations: Sequence[Iteration]) -> Iterator[str]:
    """Yield numbers that occur twice or not in the order in which the iterations began."""
    for service in {each.service for each in iterations}:
        last, term = 0, 0
        for each in (one for one in iterations if one.service == service):
            if each.number <= last:
                yield f"iteration {each.number} of {service} began after {last}"
            if each.term < term:
                yield f"iteration {each.number} of {service} in term {each.term} began after term {term}"
            last, term = each.number, each.term


def unrecorded(
    iterations: Iterable[Iteration],
    recorded: dict[tuple[str, int], tuple[int, int, str | None]],
    effects: Sequence[tuple[str, int, int, int]],
    died: dict[int, float],
) -> Iterator[str]:
    """Yield differences between tables and notes in instance, outcome and effects of each iteration."""
    found = {(each.service, each.number): each for each in iterations}
    if len({(service, number) for service, number, _, _ in effects}) != len(effects):
        yield "an iteration has had its effect twice"
    written = {(service, number): (term, pid) for service, number, term, pid in effects}
    for key in written.keys() - found.keys():
        yield f"{key} has had an effect and was not begun"
    for key, each in found.items():
        if key not in recorded:
            yield f"{key} is not written down"
            continue
        pid, term, outcome = recorded[key]
        if (pid, term) != (each.pid, each.term):
            yield f"{key} ran in {each.pid}, term {each.term}, and is written down for {pid}, {term}"
        if key in written and written[key] != (each.term, each.pid):
            yield f"{key} ran in {each.pid}, and {written[key]} has had its effect"
        if outcome is None:
            yield f"{key}: nobody has found out what became of it"
        if each.ended is None and each.pid in died and outcome != "lost":
            yield f"{key} died with {each.pid}, and is written down as {outcome}"
        if outcome == "succeeded" and (each.ended is None or key not in written):
            yield f"{key} is written down as {outcome}, ended {each.ended}, written {key in written}"


def gaps(iterations: Sequence[Iteration], kills: Iterable[tuple[int, float]]) -> list[float]:
    """Return, for each kill, the seconds until the first iteration on another instance."""
    return [
        min(each.began for each in iterations if each.began > at and each.pid != pid) - at
        for pid, at in kills
    ]


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return p50, p99 and the maximum."""
    ordered = sorted(values)
    return (
        statistics.median(ordered),
        ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)],
        ordered[-1],
    )
