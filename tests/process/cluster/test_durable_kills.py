"""A worker killed at every await of a function of ten steps, with one process for each place.

First every job, in a separate queue, loses its worker. Then the stored state is recorded. Then a surviving
worker finishes the jobs. A step that writes through `ctx.transaction()` has its effect once. Of the other
steps exactly those are repeated whose code had its effect before the record was written.

There are a few hundred places; `make test` takes a sample and `make proofs` all of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from support.durable_kills import (
    KillTrial,
)
from support.programs.durable_app import LINES, STEPS
from support.scale import scale

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SAMPLE = 31
LEAST = {"own": 150, "scribe": 30, "exchange": 12}
"""Least number of places on each code path; fewer mean that awaits are not counted where they should be."""


@pytest.mark.parametrize("task", scale(["ten"], ["ten", "threaded"]))
async def test_durable_steps_after_kill_at_any_await_have_expected_effects(
    rota_dsn: str, tmp_path: Path, task: str
) -> None:
    trial = KillTrial(rota_dsn, tmp_path, task, STEPS)
    # The stride is coprime to the period of the steps, so that a sample covers every part of a step.
    stride = scale(SAMPLE, 1)
    left = await trial.run({line: range(1, 2**40, stride) for line in LINES})

    faults = await trial.faults(left)
    assert not faults, "\n".join(faults)
    seen = Counter(where.split("-")[0] for where in trial.jobs.values())
    after = await trial.look()
    repeated = sum(len(some) - 1 for each in after.values() for some in each.noted.values())
    print(f"{task}: killed at {dict(seen)} places; {repeated} of the steps in flight were repeated")
    assert all(seen[line] >= LEAST[line] // stride for line in LINES), seen
