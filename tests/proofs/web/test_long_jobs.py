"""A job that the last request before a shutdown starts."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.long_jobs import COMMANDS, problem_lines, read_notes, run_sql, wait_until_worker_runs
from support.server_process import serving, wait_until


@pytest.fixture
def dsn(rota_dsn: str, direct_dsn: str) -> str:
    run_sql(direct_dsn, "create table done (job bigint)")
    return rota_dsn


def test_job_started_by_last_request_is_run_by_the_next_worker(
    dsn: str, direct_dsn: str, tmp_path: Path
) -> None:
    """The run is started after the signal: this worker claims no more jobs, the next one runs it."""
    notes = tmp_path / "notes"
    patience = {"ROTA_DRAIN_DELAY": "2", "ROTA_DRAIN_TIMEOUT": "5"}
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with serving(COMMANDS["serve"], dsn, first, **patience) as leaving:
        wait_until_worker_runs(leaving)
        leaving.tell(signal.SIGTERM)
        wait_until(lambda: "leaving" in leaving.said, leaving)
        run = leaving.ask(f"/lengthy?seconds=0&notes={notes}", "POST").body["run"]

        assert leaving.ended() == 0, leaving.said
    assert read_notes(notes) == []
    with serving(COMMANDS["worker"], dsn, second, **patience) as staying:
        wait_until(lambda: "ended" in read_notes(notes), staying)
        staying.tell(signal.SIGTERM)
        assert staying.ended() == 0, staying.said
    assert run_sql(direct_dsn, f"select state::text from rota.job_state where job = {run}") == [
        ("succeeded",)
    ]
    assert problem_lines(leaving) == []
