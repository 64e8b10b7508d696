"""Instances that run services: which ones a report returns."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from rota.store import services, workers

from .losses import bury
from .stage import Stage


async def report(stage: Stage, instance: UUID, pid: int) -> dict[UUID, float]:
    """Report an instance; return the seconds for which each instance was silent."""
    identity = {"instance": instance, "host": "box", "pid": pid, "label": ""}
    found = await stage.run(services.beat(identity, "1", 60.0, ["a"], []))
    return {each.instance: each.silent_seconds for each in found}


async def test_beat_returns_every_instance_with_its_silence(stage: Stage) -> None:
    one, other = uuid4(), uuid4()
    await report(stage, other, pid=2)
    await stage.sql(
        "update rota.instances set last_seen = rota.clock() - interval '5 s' returning id"
    )

    found = await report(stage, one, pid=1)

    assert found.keys() == {one, other}
    assert found[one] == 0
    assert found[other] == pytest.approx(5, abs=1)


async def test_beat_leaves_out_an_instance_whose_worker_died_since(stage: Stage) -> None:
    one, other = uuid4(), uuid4()
    [worker] = await stage.run(workers.register("box", 2, "1", ["q"], ["t"], 1))
    await report(stage, other, pid=2)
    await bury(stage, worker)
    assert (await report(stage, one, pid=1)).keys() == {one}

    # Another process may have the same pid, so a new report counts again.
    await report(stage, other, pid=2)
    assert (await report(stage, one, pid=1)).keys() == {one, other}
