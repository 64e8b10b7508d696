"""The agent scheduler on two instances, restarted and killed: each tick runs once, and no request fails."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from support.balancer import Balancer, Clients, balancing
from support.example_programs import Program, Programs
from support.scale import scale
from support.server_process import free_port

RESTARTS, KILLS = scale((2, 1), (30, 10))
SETTINGS = {"AGENTS_PACE": "0.05", "ROTA_DRAIN_DELAY": "1.2", "ROTA_DRAIN_TIMEOUT": "10"}
ACTIONS: dict[str, tuple[str, dict[str, Any], float]] = {
    "tea": ("remind", {"text": "tea"}, 0.5),
    "news": ("digest", {"topics": ["trade", "weather"]}, 1.0),
    "floor": ("sweep", {"items": 40}, 1.0),
    "tidy": ("agent", {"goal": "tidy up", "turns": 3}, 2.0),
}
"""Actions by name: type, config and interval in seconds."""

BY_HAND: dict[str, tuple[str, dict[str, Any], float]] = {
    "bell": ("remind", {"text": "the bell"}, 86_400.0)
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(scale(120, 900))]

Make = Callable[..., Programs]


class Service:
    """Two instances of the service."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.ports = [free_port(), free_port()]
        programs.run("examples.agents.tables")
        self.instances = [self.start(0), self.start(1)]
        for place in (0, 1):
            self.until_ready(place)

    def start(self, place: int) -> Program:
        words = ("serve", "examples.agents.api:api", "--port", f"{self.ports[place]}")
        return self.programs.start("rota", *words)

    def until_ready(self, place: int) -> None:
        def ready() -> bool:
            with suppress(OSError):
                request_json(self.ports[place], "/health/ready")
                return True
            return False

        self.programs.until(ready)

    def restart(self, place: int, balancer: Balancer) -> int:
        """Restart an instance as a rolling deploy does; return its exit code."""
        code = self.instances[place].stop()
        self.until_ticks(1 - place)
        self.instances[place] = self.start(place)
        self.until_ready(place)
        balancer.until_up(["one", "two"])
        return code

    def kill(self, place: int) -> None:
        self.instances[place].kill()
        self.until_ticks(1 - place)

    def until_ticks(self, place: int) -> None:
        """Wait until this instance starts ticks of the schedules."""
        ticks = "select count(*) from rota.ticks where pid = %s and schedule <> 'bell'"
        pid = self.instances[place].pid
        before = self.programs.rows(ticks, pid)
        self.programs.until(lambda: self.programs.rows(ticks, pid) != before)

    def replace(self, place: int) -> None:
        """Start an instance in place of a killed one."""
        self.instances[place] = self.start(place)
        self.until_ready(place)

    def rest(self) -> None:
        """Pause all schedules and wait until no work is left."""
        for name in (*ACTIONS, *BY_HAND):
            request_json(self.ports[1], f"/actions/{name}/pause", "POST")
        left = (
            "select (select count(*) from rota.run_state where state not in ('succeeded', 'failed')),"
            " (select count(*) from rota.ticks where outcome is null)"
        )
        self.programs.until(lambda: self.programs.rows(left) == [(0, 0)], within=60)


def request_json(port: int, path: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    url = f"http://127.0.0.1:{port}{path}"
    with urlopen(Request(url, data, headers, method=method), timeout=60) as answer:
        return json.load(answer)


def create(port: int) -> None:
    for name, (type, config, every) in (ACTIONS | BY_HAND).items():
        new = {"name": name, "type": type, "config": config, "every": every}
        assert request_json(port, "/actions", "POST", new) == {"name": name}


async def test_agents_restarts_and_kills_run_each_tick_once_without_errors(programs: Make) -> None:
    service = Service(programs(**SETTINGS))
    port = free_port()
    with balancing(service.programs.directory, port, *service.ports) as balancer:
        await asyncio.to_thread(balancer.until_up, ["one", "two"])
        await asyncio.to_thread(create, port)
        clients = Clients(port, rate=25, connections=5, path="/actions/bell/trigger")
        asking = asyncio.create_task(clients.ask())
        codes = [
            await asyncio.to_thread(service.restart, turn % 2, balancer) for turn in range(RESTARTS)
        ]
        clients.stop()
        await asking
    for last in range(KILLS, 0, -1):
        await asyncio.sleep(0.7)
        await asyncio.to_thread(service.kill, 0)
        if last > 1:
            await asyncio.to_thread(service.replace, 0)
    await asyncio.to_thread(service.rest)

    found = list(faults(service.programs))
    assert not found, "\n".join(found)
    [(ticks, pids)] = service.programs.rows(
        "select count(*), count(distinct pid) from rota.ticks where schedule <> 'bell'"
    )
    print(
        f"{RESTARTS} restarts, {KILLS} kills: {ticks} ticks on {pids} processes; {clients.answers}, "
        f"slowest {clients.slowest * 1000:.0f} ms"
    )
    assert clients.failed == 0, clients.answers
    rung = service.programs.rows("select run from results where content ~ 'the bell'")
    assert len(set(rung)) == len(rung) == len(clients.accepted) > 50
    assert set(codes) == {0}
    assert pids > 2
    for word in ("Traceback", "is not open"):
        assert word not in service.programs.said


def faults(programs: Programs) -> Iterator[str]:
    """Yield ticks that were skipped or ran more than once, by the schedule's records and by the results."""
    for name, (type, config, every) in ACTIONS.items():
        found = programs.rows(
            "select tick, run, outcome::text from rota.ticks where schedule = %s order by tick",
            name,
        )
        yield from gaps(name, [tick for tick, _, _ in found], every)
        for tick, run, outcome in found:
            if outcome != "succeeded":
                yield f"{name} at {tick}: run {run} has {outcome}"
        ran = Counter(run for _, run, _ in found)
        if type == "agent":
            agents = programs.rows("select count(*) from rota.job_state where task = 'agent'")
            if agents != [(len(found),)]:
                yield f"{len(found)} ticks have started {agents[0][0]} agents"
            results = programs.rows(
                "select run, content, count(*) from results where content ~ 'thought' group by run, content"
            )
            if len(results) != len(found) * config["turns"]:
                yield f"{len(results)} thoughts in {len(found)} agents of {config['turns']} turns"
        else:
            results = programs.rows(
                "select run, content, count(*) from results where run = any(%s) group by 1, 2",
                list(ran),
            )
            for missing in ran.keys() - {run for run, _, _ in results}:
                yield f"{name}: run {missing} has done nothing"
        for run, content, count in results:
            if count > 1:
                yield f"{name}: run {run} has done {content} {count} times"


def gaps(name: str, ticks: list[datetime], every: float) -> Iterator[str]:
    if len(ticks) < 3:
        yield f"{name} has had {len(ticks)} ticks"
    for before, after in pairwise(ticks):
        if after - before != timedelta(seconds=every):
            yield f"{name}: {after} comes {after - before} after the tick before it"


def test_agents_command_paused_agent_resumes_on_other_instance(programs: Make) -> None:
    """`python -m examples.agents`; one of its two instances is killed."""
    first = free_port()
    second = first + 1
    crew = programs(**{**SETTINGS, "AGENTS_PACE": "0.3"})
    both = crew.start("examples.agents", "--port", f"{first}", "--drain-delay", "0")
    thoughts = "select content from results order by content"
    try:
        victim = int(both.says(rf":{first} is process (\d+)")[1])
        both.says(r"(?s)(serving at.*){2}")
        run = request_json(first, "/agents", "POST", {"goal": "tidy", "turns": 6})["run"]
        crew.until(lambda: len(crew.rows(thoughts)) > 1)

        assert request_json(second, f"/agents/{run}/pause", "POST") == {"run": run, "pauses": 1}
        crew.until(lambda: request_json(second, f"/agents/{run}")["state"] == "sleeping")
        before = len(crew.rows(thoughts))
        os.kill(victim, signal.SIGKILL)
        assert request_json(second, f"/agents/{run}/resume", "POST") == {"run": run, "resumes": 1}
        for path, refusal in (
            (f"/agents/{run}/resume", "409"),
            ("/actions/nothing/pause", "404"),
            ("/actions", "422"),
        ):
            with pytest.raises(HTTPError, match=refusal):
                request_json(second, path, "POST", {"name": "x", "type": "remind", "every": 1})
        crew.until(lambda: request_json(second, f"/agents/{run}")["state"] == "succeeded")
    finally:
        code = both.stop()  # it stops the instances it started

    assert 2 <= before < 6
    assert crew.rows(thoughts) == [(f"thought {turn} of tidy",) for turn in range(1, 7)]
    assert code == 0, both.said
    # It starts and stops in order.
    order = ("model open", "up to 100 jobs", "\nready", "draining", "left", "jobs have ended")
    places = [both.said.index(word) for word in (*order, "model closed")]
    assert places == sorted(places), both.said


def test_agents_checker_finds_missing_and_repeated_ticks() -> None:
    noon = datetime(2026, 11, 16, 12).astimezone()
    ticks = [noon + timedelta(seconds=second) for second in range(5)]
    assert list(gaps("tea", ticks, 1)) == []
    assert list(gaps("tea", ticks[:2], 1))
    assert list(gaps("tea", [*ticks[:2], *ticks[3:]], 1))
    assert list(gaps("tea", [*ticks[:3], *ticks[2:]], 1))
