"""Instances that run services: which ones a report returns."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rota.store import services, workers
from support.lost_workers import declare_dead
from support.stage import Stage


async def report(stage: Stage, instance: UUID, pid: int) -> dict[UUID, float]:
    """Report an instance; return the seconds for which each instance was silent."""
    identity = {"instance": instance, "host": "box", "pid": pid, "label": ""}
    found = await stage.run(services.beat(identity, "1", 60.0, ["a"], []))
    return {each.instance: each.silent_seconds for each in found}


async def test_instance_beat_returns_silent_seconds_of_each_instance(stage: Stage) -> None:
    one, other = uuid4(), uuid4()
    await report(stage, other, pid=2)
    await stage.sql(
        "update rota.instances set last_seen = rota.clock() - interval '5 s' returning id"
    )

    found = await report(stage, one, pid=1)

    assert found.keys() == {one, other}
    assert found[one] == 0
    assert found[other] == pytest.approx(5, abs=1)


async def test_instance_beat_omits_instance_with_dead_worker(stage: Stage) -> None:
    one, other = uuid4(), uuid4()
    [worker] = await stage.run(workers.register("box", 2, "1", ["q"], ["t"], 1))
    await report(stage, other, pid=2)
    await declare_dead(stage, worker)
    assert (await report(stage, one, pid=1)).keys() == {one}

    # Another process may have the same pid, so a new report counts again.
    await report(stage, other, pid=2)
    assert (await report(stage, one, pid=1)).keys() == {one, other}
