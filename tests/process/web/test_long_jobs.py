"""Jobs that run while their instance is stopped, under `rota serve` and under `rota worker`.

A job that ends within the drain timeout completes, and its resources stay open until then. Any other job is
returned to the queue at once without counting the attempt. With ROTA_TEST_LONG=1 a job takes twenty
seconds.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from support.long_jobs import COMMANDS, problem_lines, read_notes, run_sql, wait_until_worker_runs
from support.scale import scale
from support.server_process import serving, wait_until

TASKS = ("endless", "stubborn")
JOB_SECONDS = scale(3.0, 20.0)
LB_DELAY = 0.5
GRACE = 1.5


@pytest.fixture
def dsn(rota_dsn: str, direct_dsn: str) -> str:
    run_sql(direct_dsn, "create table done (job bigint)")
    return rota_dsn


def start(dsn: str, task: str, **arguments: Any) -> int:
    """Start a run as another program does, by the name of the task."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        asked = connection.execute(
            "select run from rota.start(%s, %s)", (task, json.dumps(arguments))
        )
        [run] = asked.fetchone() or [0]
        return int(run)


@pytest.mark.parametrize("command", COMMANDS)
def test_job_running_at_sigterm_completes_within_drain_timeout(
    command: str, dsn: str, direct_dsn: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    patience = {"ROTA_DRAIN_DELAY": str(LB_DELAY), "ROTA_DRAIN_TIMEOUT": "3600"}
    with serving(COMMANDS[command], dsn, tmp_path, **patience) as instance:
        wait_until_worker_runs(instance)
        run = start(direct_dsn, "lengthy", seconds=JOB_SECONDS, notes=str(notes))
        wait_until(lambda: read_notes(notes), instance)

        instance.tell(signal.SIGTERM)
        code = instance.ended(JOB_SECONDS + 60)

    assert code == 0, instance.said
    assert read_notes(notes) == ["began 1", "ended while draining"]
    assert run_sql(direct_dsn, f"select state::text from rota.job_state where job = {run}") == [
        ("succeeded",)
    ]
    assert run_sql(direct_dsn, "select job from done") == [(run,)]
    # The run that it started at its end is queued, for workers that serve its queue.
    assert run_sql(
        direct_dsn, "select task, state::text from rota.job_state where task = 'after'"
    ) == [("after", "queued")]
    assert run_sql(direct_dsn, "select state::text from rota.workers") == [("stopped",)]
    assert problem_lines(instance) == []


@pytest.mark.parametrize(
    ("command", "task"),
    scale(
        [("serve", "stubborn"), ("worker", "endless")],
        [(command, task) for command in COMMANDS for task in TASKS],
    ),
)
def test_job_beyond_drain_timeout_is_requeued_without_counting_attempt(
    command: str, task: str, dsn: str, direct_dsn: str, tmp_path: Path
) -> None:
    """The task has a single attempt: if this one were counted, the job would have failed."""
    notes = tmp_path / "notes"
    patience = {"ROTA_DRAIN_DELAY": str(LB_DELAY), "ROTA_DRAIN_TIMEOUT": str(GRACE)}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with serving(COMMANDS[command], dsn, first, **patience) as leaving:
        wait_until_worker_runs(leaving)
        run = start(direct_dsn, task, notes=str(notes))
        wait_until(lambda: read_notes(notes), leaving)
        with serving(COMMANDS["worker"], dsn, second, **patience) as staying:
            wait_until_worker_runs(staying)

            leaving.tell(signal.SIGTERM)
            code = leaving.ended()
            wait_until(lambda: len(read_notes(notes)) == 2, staying)
            held = run_sql(
                direct_dsn,
                "select workers.state::text, job_state.attempt from rota.job_state"
                f" join rota.workers on workers.id = job_state.worker where job = {run}",
            )
            Path(f"{notes}.end").touch()
            wait_until(lambda: "ended" in read_notes(notes), staying)
            staying.tell(signal.SIGTERM)
            assert staying.ended() == 0, staying.said

    assert code == 0, leaving.said
    assert held == [("active", 1)]
    assert read_notes(notes) == ["began 1", "began 1", "ended"]
    assert run_sql(direct_dsn, f"select state::text from rota.job_state where job = {run}") == [
        ("succeeded",)
    ]
    assert run_sql(direct_dsn, f"select * from rota.attempts where job = {run}") == []
    assert problem_lines(leaving) == problem_lines(staying) == []
