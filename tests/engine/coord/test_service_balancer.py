"""Service balancer: services end up evenly spread, and then no more move."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import uuid4

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.coord.lease import InstanceIdentity
from rota.coord.service_balancer import (
    FIRST_YIELD_SECONDS,
    HAND_OVER_PAUSE_SECONDS,
    PRESENT_SECONDS,
    YIELD_SECONDS,
    ServiceBalancer,
)
from rota.coord.services import ServiceGroup
from rota.model.service import ServiceContext
from rota.store.services import InstanceRow, leader_of
from support.owned_clock import ClockedRota, OwnedClock
from support.service_helpers import record_iterations, until


class Instance:
    """Instance that knows some services, runs some and observes the other instances."""

    def __init__(self, known: list[str]) -> None:
        self.known = known
        self.running: list[str] = []
        self.passed_on: list[str] = []
        self.id = uuid4()
        self.roster = ServiceBalancer(
            InstanceIdentity(self.id, "host", 1),
            "rota",
            "",
            known,
            lambda: self.running,
            lambda: [name for name in self.running if name not in self.passed_on],
            self.passed_on.append,
            OwnedClock(),
        )

    @property
    def present(self) -> InstanceRow:
        return InstanceRow(self.id, self.known, list(self.running))

    def see(self, others: list[Instance], silent: float = 0.0) -> None:
        self.roster._other_instances = {
            each.id: msgspec.structs.replace(each.present, silent_seconds=silent)
            for each in others
            if each is not self
        }
        self.roster._has_observed = True

    def hands_over(self) -> list[str]:
        """Rebalance as if the last change were long ago; return the services handed over."""
        self.roster._changed_at = self.roster._hand_over_after = 0
        self.roster._rebalance()
        return self.passed_on

    def wants(self, vacant: list[str]) -> list[str]:
        """Return the vacant services for which it becomes a candidate without delay."""
        names = [leader_of(name) for name in vacant if name in self.known]
        return [
            name
            for name in vacant
            if name in self.known and self.roster.yield_delay(name, names) == 0
        ]


def balanced(fleet: list[Instance]) -> bool:
    """True if no instance runs two more services than another instance that knows one of them."""
    return not any(
        len(one.running) >= len(other.running) + 2 and name in other.known
        for one in fleet
        for other in fleet
        for name in one.running
    )


names = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)


@settings(deadline=None, max_examples=200)
@given(st.lists(names, min_size=1, max_size=5), st.randoms())
def test_service_balancer_any_start_reaches_a_stable_balance(
    known: list[list[str]], chance: random.Random
) -> None:
    fleet = [Instance(each) for each in known]
    for name in sorted({name for each in known for name in each}):
        # A random start, however uneven.
        chance.choice([each for each in fleet if name in each.known]).running.append(name)
    for _ in range(40):
        moved = False
        for each in chance.sample(fleet, len(fleet)):
            surplus = ServiceBalancer.surplus(
                each.running, [], [one.present for one in fleet if one is not each]
            )
            for name in surplus:
                moved = True
                each.running.remove(name)
                takers = [one for one in fleet if name in one.known and one is not each]
                min(takers, key=lambda one: len(one.running)).running.append(name)
        if not moved:
            break
    assert not moved
    assert balanced(fleet)


def test_service_balancer_vacant_services_are_shared_evenly() -> None:
    services = [f"s{number}" for number in range(12)]
    fleet = [Instance(services) for _ in range(3)]
    for each in fleet:
        each.see(fleet)
    assert [len(each.wants(services)) for each in fleet] == [4, 4, 4]
    # The choices differ; with equal choices one instance would get only services that no other chose.
    assert len({tuple(each.wants(services)) for each in fleet}) > 1
    lone = Instance(services)
    lone.see([])
    assert lone.wants(services) == services


def test_service_balancer_services_of_dead_instance_are_shared() -> None:
    services = [f"s{number}" for number in range(6)]
    fleet = [Instance(services) for _ in range(3)]
    for number, each in enumerate(fleet):
        each.running = services[2 * number : 2 * number + 2]
    for each in fleet:
        each.see(fleet)
    vacant = fleet[2].running
    assert [len(each.wants(vacant)) for each in fleet[:2]] == [1, 1]


def test_service_balancer_busier_instance_yields_to_idle_one() -> None:
    busy, idle, ignorant = Instance(["a", "b", "c"]), Instance(["a", "b"]), Instance(["z"])
    busy.running = ["c"]
    busy.see([busy, idle, ignorant])
    assert busy.roster.yield_delay("a", [leader_of("a")]) == YIELD_SECONDS
    busy.see([busy, ignorant])
    assert busy.roster.yield_delay("a", [leader_of("a")]) == 0


def test_service_balancer_new_instance_yields_first() -> None:
    one = Instance(["a"])
    assert one.roster.yield_delay("a", [leader_of("a")]) == FIRST_YIELD_SECONDS


def test_service_balancer_pending_hand_over_is_counted_once() -> None:
    """A service that takes long to end is not handed over again, nor is another one instead."""
    services = ["a", "b", "c", "d"]
    one, other = Instance(services), Instance(services)
    one.running = list(services)
    one.see([one, other])
    assert len(one.hands_over()) == 2
    assert len(one.hands_over()) == 2


def test_service_balancer_silent_instance_receives_nothing() -> None:
    services = ["a", "b", "c", "d"]
    one, silent = Instance(services), Instance(services)
    one.running = list(services)
    one.see([one, silent], silent=PRESENT_SECONDS)
    assert one.hands_over() == []
    one.see([one, silent], silent=PRESENT_SECONDS / 2)
    assert len(one.hands_over()) == 2


def test_service_balancer_instance_silent_since_change_receives_nothing() -> None:
    services = ["a", "b", "c", "d"]
    one, killed = Instance(services), Instance(services)
    one.running = list(services)
    one.see([one, killed], silent=PRESENT_SECONDS / 2)
    one.roster.on_change()
    one.roster._hand_over_after = 0
    one.roster._rebalance()
    assert one.passed_on == []


def test_service_balancer_conflicting_report_prevents_hand_over() -> None:
    services = ["a", "b", "c", "d"]
    one, killed = Instance(services), Instance(services)
    one.running = list(services)
    killed.running = ["d"]
    one.see([one, killed])
    assert one.hands_over() == []


# With a database


class ClockedServices:
    """Services of two instances. Both have one clock, which the test advances."""

    def __init__(self, first: ClockedRota, *groups: ServiceGroup) -> None:
        self._app = first
        self._groups = groups

    def counts(self) -> list[int]:
        return [len(each.list_running()) for each in self._groups]

    def terms(self) -> list[dict[str, int | None]]:
        """Return the term of each service on each instance."""
        return [
            {
                name: None if (term := runner._leader.current) is None else term.number
                for name, runner in each._runners.items()
            }
            for each in self._groups
        ]

    async def advance(self) -> None:
        """Advance the clock by half a second, and wait until due reports have been answered."""
        await self._app.advance(0.5)
        now = self._app.lease_clock.now()
        await until(lambda: all(each._balancer.due_at() > now for each in self._groups))

    async def advance_until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.advance()

    async def check_stability(self) -> None:
        """Assert that no service moves for longer than any pause of the balancer."""
        terms = self.terms()
        for _ in range(int(4 * HAND_OVER_PAUSE_SECONDS)):
            await self.advance()
            assert self.terms() == terms


async def test_service_balancer_two_instances_share_without_interruptions(
    clocked_app: ClockedRota, rota_dsn: str
) -> None:
    inside: dict[str, int] = dict.fromkeys("abcd", 0)

    async def serve(ctx: ServiceContext) -> None:
        inside[ctx.name] += 1
        assert inside[ctx.name] == 1
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not ctx.stopping or ctx.held
        inside[ctx.name] -= 1

    async with ClockedRota(rota_dsn, clocked_app.lease_clock) as other:
        heard = [record_iterations(clocked_app), record_iterations(other)]
        for name in inside:
            clocked_app.service(name, every=0.2)(serve)
            other.service(name, every=0.2)(serve)
        async with clocked_app.services() as first:
            await ClockedServices(clocked_app, first).advance_until(
                lambda: len(first.list_running()) == 4
            )
            async with other.services() as second:
                both = ClockedServices(clocked_app, first, second)
                await both.advance_until(lambda: both.counts() == [2, 2])
                await both.check_stability()
    assert {each.outcome for each in heard[0] + heard[1]} <= {"succeeded", "stopped"}


async def test_service_balancer_service_of_one_instance_stays_there(
    clocked_app: ClockedRota, rota_dsn: str
) -> None:
    async with ClockedRota(rota_dsn, clocked_app.lease_clock) as other:
        for name in "abc":
            clocked_app.service(name, every=0.1)(lambda: None)
        other.service("z", every=0.1)(lambda: None)
        async with other.services() as second, clocked_app.services() as first:
            both = ClockedServices(clocked_app, first, second)
            await both.advance_until(lambda: both.counts() == [3, 1])
            await both.check_stability()
            assert first.list_running() == ["a", "b", "c"]
            assert second.list_running() == ["z"]
