"""State of a task by the states of its predecessors: every row of the table is run on a real worker.

The matrix in docs/guides/flows.md must predict each row. States of predecessors:

    succeeded  failed  cancelled  expired
    skipped            on purpose, by its skip_if
    skipped by failure, skipped by cancel
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from rota import Flow, Retry, Rota
from rota.testing import Harness, NotIdle
from support.places import ROOT

DOCS = ROOT / "docs" / "guides" / "flows.md"

RULES = ("all_succeeded", "none_failed", "all_done", "any_failed")

TABLE = """
| rule | parents came to | the task | the run |
| --- | --- | --- | --- |
| all_succeeded | succeeded, succeeded | runs | succeeded |
| all_succeeded | succeeded, skipped | skipped | succeeded |
| all_succeeded | succeeded, failed | skipped by failure | failed |
| all_succeeded | succeeded, expired | skipped by failure | failed |
| all_succeeded | succeeded, cancelled | skipped by cancel | cancelled |
| all_succeeded | failed, cancelled | skipped by failure | failed |
| all_succeeded | succeeded, skipped by failure | skipped by failure | failed |
| all_succeeded | skipped, skipped by cancel | skipped by cancel | cancelled |
| none_failed | succeeded, skipped | runs | succeeded |
| none_failed | skipped, skipped | runs | succeeded |
| none_failed | succeeded, failed | skipped by failure | failed |
| none_failed | skipped, expired | skipped by failure | failed |
| none_failed | succeeded, cancelled | skipped by cancel | cancelled |
| none_failed | succeeded, skipped by failure | skipped by failure | failed |
| none_failed | succeeded, skipped by cancel | skipped by cancel | cancelled |
| all_done | succeeded, skipped | runs | succeeded |
| all_done | succeeded, failed | runs | failed |
| all_done | cancelled, skipped | runs | cancelled |
| all_done | failed, cancelled | runs | failed |
| all_done | skipped by failure, succeeded | runs | failed |
| any_failed | succeeded, succeeded | skipped | succeeded |
| any_failed | succeeded, skipped | skipped | succeeded |
| any_failed | succeeded, failed | runs | failed |
| any_failed | succeeded, cancelled | skipped by cancel | cancelled |
| any_failed | failed, cancelled | runs | failed |
| any_failed | succeeded, skipped by failure | runs | failed |
| any_failed | succeeded, skipped by cancel | skipped by cancel | cancelled |
"""


def cells(line: str) -> list[str]:
    return [re.sub("`", "", cell).strip() for cell in line.strip().strip("|").split("|")]


def rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    for line in text.splitlines():
        match cells(line):
            case [rule, parents, task, run] if rule in RULES:
                yield rule, parents, task, run


CONDITIONS = {
    "one failed or expired, or was skipped because of a failure": {
        *("failed", "expired", "skipped by failure")
    },
    "one was cancelled, or skipped because of that": {"cancelled", "skipped by cancel"},
    "one was skipped on purpose": {"skipped"},
    "all succeeded": {"succeeded"},
}
"""Rows of the matrix: the first whose states include one of a predecessor decides."""


def documented_rows() -> Iterator[tuple[set[str], dict[str, str]]]:
    """Yield the rows of the matrix in the guide: states, and the result for each rule."""
    lines = [cells(line) for line in DOCS.read_text("utf-8").splitlines() if line.startswith("|")]
    start = next(number for number, line in enumerate(lines) if line[0] == "jobs before it")
    rules = [name.removesuffix(" (default)") for name in lines[start][1:]]
    assert set(rules) == set(RULES)
    for line in lines[start + 2 : start + 2 + len(CONDITIONS)]:
        results = (result.replace("skipped on purpose", "skipped") for result in line[1:])
        yield CONDITIONS[line[0]], dict(zip(rules, results, strict=True))


@pytest.mark.parametrize(("rule", "parents", "task"), [row[:3] for row in rows(TABLE)])
def test_flows_guide_matrix_predicts_task_state(rule: str, parents: str, task: str) -> None:
    states = set(parents.split(", "))
    assert next(results[rule] for decides, results in documented_rows() if decides & states) == task


@pytest.mark.parametrize(("rule", "parents", "task", "run"), list(rows(TABLE)))
async def test_task_and_run_states_follow_predecessor_states(
    rota_harness: Harness, rule: Any, parents: str, task: str, run: str
) -> None:
    flow = rota_harness.app.flow("small")
    ends = [each.strip() for each in parents.split(",")]
    for number, came_to in enumerate(ends):
        add_predecessor(flow, f"parent{number}", came_to)
    ran: list[str] = []

    @flow.task(after=[f"parent{number}" for number in range(len(ends))], when=rule)
    async def the_task() -> None:
        ran.append("the task")

    # A predecessor that must expire has the run's expiry time; the rest have begun by then.
    expires = "expired" in ends
    started = await (flow.options(expires=60) if expires else flow).start()
    await cancel_predecessors(rota_harness.app, started.id, ends)
    if expires:
        with pytest.raises(NotIdle, match="in queue late"):
            await rota_harness.run_until_idle(queues=["default"])
        await rota_harness.clock.advance(timedelta(minutes=2))
    await rota_harness.run_until_idle(queues=["default", "late"])

    found = await states(rota_harness.app, started.id)
    if task == "runs":
        assert (found.pop("the_task"), ran) == ("succeeded", ["the task"])
    else:
        assert (found.pop("the_task"), ran) == (task, [])
    assert await started.status() == run
    assert [found[f"parent{number}"] for number in range(len(ends))] == ends


def add_predecessor(flow: Flow, name: str, came_to: str) -> None:
    """Declare a task that ends in this state, with a predecessor if it needs one."""

    async def fine() -> None: ...

    async def fails() -> None:
        raise ValueError

    match came_to:
        case "succeeded":
            flow.task(fine, name=name)
        case "failed":
            flow.task(fails, name=name, retry=Retry(max_attempts=1))
        case "skipped":
            flow.task(fine, name=name, skip_if=lambda: True)
        case "cancelled" | "expired":
            flow.task(fine, name=name, queue="late")
        case "skipped by failure":
            flow.task(fails, name=f"before_{name}", retry=Retry(max_attempts=1))
            flow.task(fine, name=name, after=[f"before_{name}"])
        case "skipped by cancel":
            flow.task(fine, name=f"before_{name}", queue="late")
            flow.task(fine, name=name, after=[f"before_{name}"])
        case _:
            raise AssertionError(came_to)


async def cancel_predecessors(app: Rota, run: int, ends: list[str]) -> None:
    for number, came_to in enumerate(ends):
        name = {"cancelled": f"parent{number}", "skipped by cancel": f"before_parent{number}"}
        if came_to in name:
            job = await fetch_all(
                app,
                "select job from rota.job_state where run = %s and task = %s",
                run,
                f"small.{name[came_to]}",
            )
            assert await app.run(job[0][0]).cancel() == "cancelled"


async def states(app: Rota, run: int) -> dict[str, str]:
    found = await fetch_all(
        app,
        "select state.task, state.state, outcome.error ->> 'message' from rota.job_state as state"
        " left join rota.outcomes as outcome using (job) where run = %s",
        run,
    )
    answer = {}
    for task, state, message in found:
        if state == "skipped" and message:
            state = "skipped by failure" if message.endswith("failed") else "skipped by cancel"
        answer[task.rpartition(".")[2]] = state
    return answer


async def fetch_all(app: Rota, query: str, *params: Any) -> list[Any]:
    client = await app.open()
    async with client.database.connection() as connection:
        return await (await connection.execute(query.encode(), params)).fetchall()
