"""The market monitor with instances killed and frozen: nothing is found, bought or paged twice or missed.

The feed's journal of all requests is the reference. `make test` kills and freezes one instance,
`make proofs` one after another for some minutes.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.example_programs import Program, Programs
from support.market import (
    LIMIT,
    SECONDS,
    Market,
    Record,
    busiest,
    faults,
    open_market,
    repeated_requests,
)
from support.scale import scale
from support.server_process import free_port

MONITORS = ("/halts", "/filings", "/articles/wire")
"""Paths that one service each requests."""

ENOUGH = 10
"""Publications of each kind that the monitors must have seen."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 120)]

Make = Callable[..., Programs]


def runner(market: Market, path: str) -> Program:
    """Wait until a living instance was the last to request this path, and return it."""
    market.programs.until(lambda: market.runner(path) is not None)
    found = market.runner(path)
    return runner(market, path) if found is None else found


def replace_runner(market: Market) -> None:
    """Kill an instance that runs a monitor or a job, and start another."""
    runner(market, random.choice([*MONITORS, "/reports"])).kill()
    market.start()


def freeze_runner(market: Market) -> None:
    """Freeze an instance until another one has taken its monitor over."""
    path = random.choice(MONITORS)
    victim = runner(market, path)
    victim.freeze()
    market.programs.until(lambda: market.runner(path) not in (None, victim))
    victim.thaw()


def enough(market: Market) -> bool:
    """True if a monitor moved between instances and enough was published."""
    record = market.record()
    clients = {line["client"] for line in record.journal if line["path"] == "/halts"}
    seen = min(len(record.filings), len(record.halts), len(record.articles))
    return len(clients) > 1 and seen > ENOUGH


@pytest.mark.parametrize("count", scale([3], [2, 3]))
def test_market_killed_and_frozen_instances_repeat_and_miss_nothing(
    programs: Make, count: int
) -> None:
    market = open_market(programs())
    market.start(count)
    market.programs.until(lambda: len(market.record().findings) > 15)
    assert not list(repeated_requests(market.record()))

    rounds, ends = 0, time.monotonic() + SECONDS
    while not rounds or time.monotonic() < ends or not enough(market):
        replace_runner(market)
        freeze_runner(market)
        rounds += 1
    assert len(market.living) == count
    market.end_publications()
    market.programs.until(market.caught_up, within=60)
    # Unexpected repeats would come with the next iterations of all monitors.
    before = market.requests_by_path()
    market.programs.until(
        lambda: all(market.requests_by_path()[path] > before[path] + 1 for path in MONITORS)
    )
    codes = [each.stop() for each in market.living]

    record = market.record()
    found = faults(record)
    assert not found, "\n".join(found)
    bought = [line for line in record.journal if line["path"] == "/reports"]
    repeats = sum(not line["cents"] for line in bought)
    requests = sum(line.get("limited", False) for line in record.journal)
    print(
        f"{count} instances, {rounds} killed, {rounds} frozen: {len(record.filings)} filings, "
        f"{len(record.halts)} halts, {len(record.articles)} articles, {len(bought) - repeats} reports "
        f"({repeats} asked for again), {len(record.alerts)} alerts; {requests} requests, "
        f"{busiest(record.journal)} of {LIMIT} in the busiest second"
    )
    assert set(codes) == {0}


def test_market_command_survives_killed_instance(programs: Make) -> None:
    """`python -m examples.market`, and the kill that its first lines suggest."""
    feed = f"http://127.0.0.1:{free_port()}"
    all_of_it = programs(MARKET_FEED=feed, MARKET_LIMIT="25").start(
        "examples.market", "--instances", "2", "--pace", "0.025", "--every", "1"
    )
    try:
        first = int(all_of_it.says(r"instance 1 is process (\d+): kill -9 it")[1])
        all_of_it.says(r"[1-9]\d* findings, [1-9]\d* alerts; feed: \d+ requests, 0 refused")
        os.kill(first, signal.SIGKILL)
        before = len(re.findall("findings", all_of_it.said))
        all_of_it.says(f"(?s)(findings.*){{{before + 2}}}")
    finally:
        code = all_of_it.stop()  # it stops the instances it started

    assert code == 0, all_of_it.said
    assert "stopping: running jobs finish first" in all_of_it.said
    assert "Traceback" not in all_of_it.said
    assert not re.search(r"[1-9]\d* refused", all_of_it.said)


def test_market_checker_finds_every_kind_of_fault() -> None:
    def line(path: str, came: float, **what: Any) -> dict[str, Any]:
        return {"path": path, "at": came, "status": 200, "client": "market/1", **what}

    good = Record(
        [
            line("/filings", 1.0, limited=True),
            line("/reports", 1.2, limited=True, topic="A-1", cents=50),
            line("/reports", 1.4, limited=True, topic="A-1", cents=0),
            line("/pages", 1.5, about="filing 1", rings=True),
            line("/pages", 1.6, about="halt 7", rings=True),
            line("/pages", 1.7, about="halt 7", rings=False),
        ],
        {"filings": [1], "halts": [7], "articles": ["A-1"]},
        [1],
        [7],
        ["A-1"],
        [("filing 1", "A-1", 0.8), ("article A-1", "A-1", 0.2)],
        ["filing 1", "halt 7"],
    )
    assert faults(good, 3) == []
    assert list(repeated_requests(good)) == ["a report on A-1 was asked for 2 times"]
    assert faults(good, 2) == ["3 requests came within a second, 2 may"]
    changes: list[dict[str, Any]] = [
        {"journal": [*good.journal, line("/reports", 9, limited=True, topic="A-1", cents=50)]},
        {"journal": [*good.journal, line("/pages", 9, about="halt 7", rings=True)]},
        {"journal": [*good.journal, line("/pages", 9, about="halt 8", rings=True)]},
        {"journal": [*good.journal, {**line("/halts", 9, limited=True), "status": 429}]},
        {"journal": [each for each in good.journal if each.get("about") != "halt 7"]},
        {"published": {**good.published, "halts": [7, 8]}},
        {"filings": [1, 1]},
        {"halts": []},
        {"articles": []},
        {"findings": good.findings[:1]},
        {"findings": [*good.findings, good.findings[0]]},
        {"alerts": ["halt 7"]},
        {"alerts": [*good.alerts, "halt 7"]},
    ]
    for change in changes:
        assert faults(replace(good, **change), 3), change
