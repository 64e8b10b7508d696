"""Suspending jobs against all other moves: no lost wake-up, and no deadlock."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from typing import Any

from rota.engine.worker import outcomes
from rota.model.outcome import Suspended
from rota.store import runs, timers
from support.journals import claim_queued, read_journal, send_signal, wait
from support.lost_workers import deadlocks, queued_rows
from support.stage import Batch, Connection, Stage

ROUNDS = int(os.environ.get("SIGNAL_ROUNDS", "25"))
"""Number of rounds; SIGNAL_ROUNDS=1000 sets more."""


async def test_signal_stress_loses_no_wake_up_and_has_no_deadlock(stage: Stage) -> None:
    """Jobs of three runs suspend in one batch, with every commit delayed a little. Senders, a timer and a
    canceller run beside them in random order."""
    chance = random.Random(4)
    sessions = [await stage.connect(engine=True) for _ in range(6)]
    before = await deadlocks(stage)
    tally: Counter[str] = Counter()

    async def rest() -> None:
        await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003]))

    async def lay(batch: Batch, on: Connection) -> None:
        await rest()
        order = chance.sample(batch.members, len(batch.members))
        # Only the wait of the first job can time out.
        waits = {
            each.job: (
                wait("a", seconds=0.002 if each is batch.members[0] else None),
                wait("b", 1, 2),
            )
            for each in order
        }
        going = [
            (each, Suspended(waits[each.job], waits[each.job][:: chance.choice([1, -1])]))
            for each in order
        ]
        async with on.transaction():
            for query in outcomes.suspend(batch.worker, going):
                await stage.run(query, on)
                await rest()

    async def send(batch: Batch, name: str, on: Connection) -> None:
        for run in chance.sample(batch.jobs[:2], 2):
            await rest()
            async with on.transaction():
                tally[str(await send_signal(stage, run, name, f"{run}", on=on))] += 1
                await rest()

    async def wake(on: Connection) -> None:
        for _ in range(3):
            await rest()
            async with on.transaction():
                await stage.run(timers.wake(10), on)
                await rest()

    async def cancel(batch: Batch, on: Connection) -> None:
        await rest()
        await rest()
        [answer] = await stage.run(runs.cancel(batch.jobs[2]), on)
        tally[str(answer)] += 1

    for _ in range(ROUNDS):
        batch = await stage.held(3)
        doing: list[Any] = [
            lay(batch, sessions[0]),
            send(batch, "a", sessions[1]),
            send(batch, "b", sessions[2]),
            send(batch, "a", sessions[3]),
            wake(sessions[4]),
            cancel(batch, sessions[5]),
        ]
        await asyncio.gather(*doing)
        await stage.check()
        # The first two jobs got all signals, so neither sleeps. The third was cancelled while sleeping or
        # suspending.
        assert sorted(await queued_rows(stage, "seq")) == batch.jobs[:2]
        assert await stage.place(batch.jobs[2]) == "cancelled"
        new = await claim_queued(stage)
        for each in new.members:
            found = await read_journal(stage, Batch(new.worker, new.id, [each.job], [each]))
            assert [kept.payload for kept in found] == [str(each.job)] * 2
        assert await stage.complete(new) == []

    assert tally["sent"] == ROUNDS * 4
    assert tally["known"] == ROUNDS * 2
    assert min(tally["cancelled"], tally["requested"]) > 0, tally
    assert await deadlocks(stage) == before
