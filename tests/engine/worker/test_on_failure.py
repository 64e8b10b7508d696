"""A flow's `on_failure` receives every failure, even if later tasks ran despite it."""

from __future__ import annotations

import pytest

from rota import Context, Retry, RunFailed
from rota.model.flow import When
from rota.testing import Harness


@pytest.mark.parametrize("when", ["all_done", "any_failed"])
@pytest.mark.parametrize("deep", [False, True], ids=["at once", "after a skip"])
async def test_on_failure_receives_failure_that_later_task_tolerates(
    rota_harness: Harness, when: When, deep: bool
) -> None:
    flow = rota_harness.app.flow("f")
    heard: list[str] = []

    @flow.task(retry=Retry(max_attempts=1))
    async def breaks() -> None:
        raise LookupError

    @flow.task(after=[breaks])
    async def skipped() -> None:
        raise AssertionError

    @flow.task(after=[skipped if deep else breaks], when=when)
    async def runs() -> str:
        return "ran"

    @flow.task(after=[runs])
    async def last() -> str:
        return "last"

    @flow.on_failure
    async def tell(ctx: Context) -> None:
        heard.extend(each.task for each in await ctx.failures())

    run = await flow.start()
    await rota_harness.run_until_idle()

    assert heard == ["breaks"]
    with pytest.raises(RunFailed, match=r"f\.breaks"):
        await run.result(timeout=60)


async def test_on_failure_runs_after_all_other_tasks(rota_harness: Harness) -> None:
    flow = rota_harness.app.flow("f")
    order: list[str] = []

    @flow.task(retry=Retry(max_attempts=1))
    async def breaks() -> None:
        raise LookupError

    @flow.task(after=[breaks], when="all_done")
    async def tidy() -> None:
        order.append("tidy")

    @flow.task(after=[tidy])
    async def last() -> None:
        order.append("last")

    @flow.on_failure
    async def tell() -> None:
        order.append("tell")

    await flow.start()
    await rota_harness.run_until_idle()

    assert order == ["tidy", "last", "tell"]
