"""The market monitor on several instances, and checks of its results against the feed's journal."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from support.example_programs import Program, Programs
from support.scale import scale
from support.server_process import free_port

LIMIT = 25
"""Requests that the feed allows in any second."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Record:
    """Journal of the feed, its publications, and the rows of the monitors."""

    journal: list[Line]
    published: dict[str, list[Any]]
    filings: list[int]
    halts: list[int]
    articles: list[str]
    findings: list[tuple[str, str, float]]
    alerts: list[str]


class Market:
    def __init__(self, programs: Programs, pace: float, app: str, limit: int = LIMIT) -> None:
        self.programs = programs
        self.instances: list[Program] = []
        self._app = app
        self._journal = programs.directory / "feed.jsonl"
        self._journal.touch()
        port = free_port()
        self._address = f"http://127.0.0.1:{port}"
        programs.environment |= {
            "MARKET_FEED": self._address,
            "MARKET_LIMIT": f"{limit}",
            "MARKET_PACE": f"{pace}",
        }
        words = ("--port", f"{port}", "--journal", f"{self._journal}")
        self.feed = programs.start("examples.market.feed", *words)
        self.feed.says("feed at")

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            words = ("rota", "worker", self._app, "--log-level", "warning")
            self.instances.append(self.programs.start(*words))

    @property
    def living(self) -> list[Program]:
        return [each for each in self.instances if each.lives]

    def journal(self) -> list[Line]:
        *whole, _ = self._journal.read_text().split("\n")
        return [json.loads(line) for line in whole]

    def runner(self, path: str) -> Program | None:
        """Return the instance that last requested this path, if it is alive."""
        asked = [line["client"] for line in self.journal() if line["path"] == path]
        return next((each for each in self.living if asked[-1:] == [f"market/{each.pid}"]), None)

    def requests_by_path(self) -> Counter[str]:
        return Counter(line["path"] for line in self.journal())

    def end_publications(self) -> None:
        """Let the feed publish nothing new from now on."""
        with urllib.request.urlopen(f"{self._address}/end", data=b"", timeout=60) as answer:
            assert answer.status == 200

    def published(self) -> dict[str, list[Any]]:
        with urllib.request.urlopen(f"{self._address}/published", timeout=60) as answer:
            found: dict[str, list[Any]] = json.load(answer)
            return found

    def record(self) -> Record:
        rows = self.programs.rows
        return Record(
            [line for line in self.journal() if line["path"] not in ("/published", "/end")],
            self.published(),
            [number for (number,) in rows("select number from filings")],
            [number for (number,) in rows("select number from halts")],
            [topic for (topic,) in rows("select topic from articles")],
            rows("select about, topic, score from findings"),
            [about for (about,) in rows("select about from alerts")],
        )

    def caught_up(self) -> bool:
        """True if no work is left."""
        record = self.record()
        return (
            not any(missing_results(record))
            and len(rings_by_subject(record.journal)) == len(set(record.alerts))
            and self.programs.rows(
                "select count(*) from rota.job_state where task in ('research', 'page')"
                " and state not in ('succeeded', 'failed')"
            )
            == [(0,)]
        )


def rings_by_subject(journal: list[Line]) -> Counter[str]:
    """Return how often the pager rang for each subject."""
    return Counter(line["about"] for line in journal if line.get("rings"))


def busiest(journal: list[Line]) -> int:
    """Return the most requests within a second, allowed or refused."""
    came = sorted(line["at"] for line in journal if line.get("limited"))
    most = first = 0
    for last, at in enumerate(came):
        while came[first] <= at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


# Faults


def faults(record: Record, limit: int = LIMIT) -> list[str]:
    return [
        *rate_limit_faults(record, limit),
        *repeated_results(record),
        *missing_results(record),
        *results_without_cause(record),
    ]


def rate_limit_faults(record: Record, limit: int) -> Iterator[str]:
    if (most := busiest(record.journal)) > limit:
        yield f"{most} requests came within a second, {limit} may"
    if refused := sum(line["status"] == 429 for line in record.journal):
        yield f"{refused} requests were too many for the feed"


def repeated_results(record: Record) -> Iterator[str]:
    paid = Counter(line["topic"] for line in record.journal if line.get("cents"))
    counted: dict[str, Counter[Any]] = {
        "filed": Counter(record.filings),
        "halted": Counter(record.halts),
        "published": Counter(record.articles),
        "paid for": paid,
        "found out": Counter(about for about, _, _ in record.findings),
        "alerted": Counter(record.alerts),
        "paged": rings_by_subject(record.journal),
    }
    for what, counts in counted.items():
        for each, count in counts.items():
            if count > 1:
                yield f"{each} was {what} {count} times"


def repeated_requests(record: Record) -> Iterator[str]:
    """Yield repeated requests. Without a killed or frozen instance there are none."""
    asked = Counter(line["topic"] for line in record.journal if "topic" in line)
    for topic, count in asked.items():
        if count > 1:
            yield f"a report on {topic} was asked for {count} times"


def missing_results(record: Record) -> Iterator[str]:
    for what, known in (
        ("filings", record.filings),
        ("halts", record.halts),
        ("articles", record.articles),
    ):
        for each in set(record.published[what]) - set(known):
            yield f"{each} of {what} was missed"
    studied = {about for about, _, _ in record.findings}
    for about in (
        *(f"filing {number}" for number in record.filings),
        *(f"article {topic}" for topic in record.articles),
    ):
        if about not in studied:
            yield f"{about} was not looked into"
    wanted = {about for about, _, score in record.findings if score > 0.7}
    wanted |= {f"halt {number}" for number in record.halts}
    for about in wanted - set(record.alerts):
        yield f"{about} raised no alert"
    for about in wanted - set(rings_by_subject(record.journal)):
        yield f"nobody was paged for {about}"


def results_without_cause(record: Record) -> Iterator[str]:
    """Yield results without a cause."""
    paid = {line["topic"] for line in record.journal if line.get("cents")}
    for topic in paid - {topic for _, topic, _ in record.findings}:
        yield f"a report on {topic} was paid for, and nobody looked at it"
    for about in set(rings_by_subject(record.journal)) - set(record.alerts):
        yield f"somebody was paged for {about}, of which nothing is known"


SECONDS, PACE = scale((0, 1 / 40), (150, 1 / 20))
"""Minimum duration, and the length of the feed's hour in hours."""


APP = "examples.market.app:app"


def open_market(programs: Programs, app: str = APP, limit: int = LIMIT) -> Market:
    """Create the tables and return the market."""
    programs.run("examples.market.tables")
    return Market(programs, PACE, app, limit)
