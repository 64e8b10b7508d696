"""Rolling restarts behind a load balancer, under load: no request fails, no job is lost or run twice."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from support.balancer import Balancer, Clients, balancing
from support.fleet import wait_for_row
from support.scale import scale
from support.server_process import ServerProcess, free_port

RESTARTS = scale(5, 100)

SERVE = ["rota", "serve", "orders:api", "--port", "{port}"]
DRAIN = ["uvicorn", "orders:drained", "--port", "{port}"]
PLAIN = ["uvicorn", "orders:api", "--port", "{port}"]
"""The same API without a graceful drain."""

# As in the guide: two probes, 100 ms apart, plus one second.
LB_DELAY = 1.2
SETTINGS = {"ROTA_DRAIN_DELAY": str(LB_DELAY), "ROTA_DRAIN_TIMEOUT": "10"}


@dataclass
class Rollout:
    """Two instances and their load balancer during a rolling restart."""

    command: list[str]
    dsn: str
    directory: Path
    ports: list[int]
    instances: list[ServerProcess]
    seen: list[list[str]]
    """Answers of each stopped instance to readiness probes after the signal, in order."""
    told: list[float]
    """Time of the signal to each of them."""
    served: list[float]
    """Seconds after the signal for which it accepted connections."""

    def start(self, place: int) -> ServerProcess:
        log = self.directory / "log"
        port = str(self.ports[place])
        return ServerProcess(self.command, self.dsn, log, port, **SETTINGS, **self.notes)

    @property
    def notes(self) -> dict[str, str]:
        return {"NOTES": str(self.directory / "notes")}

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def runs_of_each(self) -> list[int]:
        """Return the numbers of the jobs, once for each run of the job's code."""
        return [int(line) for line in (self.directory / "notes").read_text().split()]

    def restart(self, place: int, balancer: Balancer) -> int:
        """Restart one instance and wait until the balancer uses it; return the exit code of the old one."""
        old = self.instances[place]
        self.told.append(time.monotonic())
        old.tell(signal.SIGTERM)
        self.seen.append(probe_readiness(old))
        self.served.append(time.monotonic() - self.told[-1])
        code = old.ended()
        self.instances[place] = self.start(place).up()
        balancer.until_up(["one", "two"])
        return code


def seconds_since_signal(told: list[float], failures: list[float]) -> list[float]:
    """Return, for each failed request, the seconds since the last signal."""
    return [round(min(at - each for each in told if each <= at), 2) for at in failures]


def probe_readiness(instance: ServerProcess) -> list[str]:
    """Return the distinct readiness answers in order, until the instance accepts no connections."""
    said: list[str] = []
    while instance.process.poll() is None:
        try:
            word = str(instance.ask("/health/ready").status)
        except OSError:
            if not instance.accepts():
                break
            continue
        if word not in said[-1:]:
            said.append(word)
        time.sleep(0.03)
    return [*said, "closed"]


@pytest.fixture
def dsn(rota_dsn: str) -> str:
    with psycopg.connect(rota_dsn, autocommit=True) as connection:
        connection.execute("create table orders (number integer)")
    return rota_dsn


@pytest.fixture
def rollout(dsn: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rollout]:
    (tmp_path / "notes").touch()
    rollout = Rollout(request.param, dsn, tmp_path, [free_port(), free_port()], [], [], [], [])
    try:
        rollout.instances += [rollout.start(0), rollout.start(1)]
        yield rollout
    finally:
        for each in rollout.instances:
            each.close()


async def restart_in_turn(rollout: Rollout, restarts: int) -> tuple[Clients, list[int]]:
    for each in rollout.instances:
        await asyncio.to_thread(each.up)
    port = free_port()
    with balancing(rollout.directory, port, *rollout.ports) as balancer:
        await asyncio.to_thread(balancer.until_up, ["one", "two"])
        clients = Clients(port)
        asking = asyncio.create_task(clients.ask())
        codes = [
            await asyncio.to_thread(rollout.restart, turn % 2, balancer) for turn in range(restarts)
        ]
        clients.stop()
        await asking
    return clients, codes


@pytest.mark.timeout(scale(180, 1800))
@pytest.mark.parametrize(
    "rollout", [SERVE, *(scale([], [DRAIN]))], ids=lambda command: command[0], indirect=True
)
async def test_rolling_restart_fails_no_request_and_runs_each_job_once(rollout: Rollout) -> None:
    clients, codes = await restart_in_turn(rollout, RESTARTS)

    accepted = len(clients.accepted)
    print(
        f"\n{rollout.command[0]}: {RESTARTS} restarts in {clients.took:.0f} s, {accepted} requests "
        f"({accepted / clients.took:.0f}/s), slowest {clients.slowest * 1000:.0f} ms, "
        f"failed {clients.failed}"
    )
    assert clients.failed == 0, (
        clients.answers,
        seconds_since_signal(rollout.told, clients.failures),
    )
    assert accepted > RESTARTS * 50
    # Readiness failed before the socket closed, each time.
    assert {tuple(each[-2:]) for each in rollout.seen} == {("503", "closed")}
    assert min(rollout.served) > LB_DELAY
    if rollout.command is SERVE:
        assert set(codes) == {0}
    await wait_for_row(rollout.dsn, "select count(*) from orders", (accepted,), within=60)
    with psycopg.connect(rollout.dsn) as connection:
        written = [row[0] for row in connection.execute("select number from orders")]
    assert sorted(written) == sorted(clients.accepted)
    assert sorted(rollout.runs_of_each) == sorted(clients.accepted)
    for word in ("pool closed", "pool is closed", "Traceback", "declared dead"):
        assert word not in rollout.said


@pytest.mark.timeout(180)
@pytest.mark.parametrize("rollout", [PLAIN], ids=["contrast"], indirect=True)
async def test_rolling_restart_without_drain_fails_requests(rollout: Rollout) -> None:
    """Contrast: the same restarts of the same API on a server that handles the signal itself."""
    clients, _ = await restart_in_turn(rollout, 1)

    assert clients.failed > 0
    # The server closes before the load balancer can notice the failed readiness.
    assert max(rollout.served) < LB_DELAY
