"""`rota prune`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import psycopg
import pytest

from rota.cli.exit_codes import FAILED, USAGE_ERROR
from rota.operations import maintenance
from rota.store.advisory_locks import RETENTION, key_of
from support.cli_fixtures import Rota
from support.terminal import Terminal

HISTORY = """
with job as (
    insert into rota.jobs (created, task, queue, args)
    select rota.clock() - make_interval(days => %(days)s), 'work', %(queue)s, '{}'
      from generate_series(1, %(count)s)
    returning id, created
)
insert into rota.outcomes (job, at, state, attempt)
select id, created, %(state)s::rota.outcome, 1 from job
"""


def insert_finished_runs(
    dsn: str, count: int, days: int, queue: str, state: str = "succeeded"
) -> None:
    values = {"count": count, "days": days, "queue": queue, "state": state}
    with psycopg.connect(dsn) as connection:
        connection.execute(HISTORY, values)


def count_jobs(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        [count] = connection.execute("select count(*) from rota.jobs").fetchone() or [0]
    return int(count)


@pytest.fixture
def old_runs_dsn(empty_rota: Rota, empty_dsn: str) -> str:
    """Create 2,500 runs that the default retention removes, and three that it keeps."""
    insert_finished_runs(empty_dsn, 2500, 8, "default")
    insert_finished_runs(empty_dsn, 3, 8, "images", "failed")
    return empty_dsn


def test_prune_nothing_old_prints_hint_or_empty_json(empty_rota: Rota) -> None:
    for words in ((), ("--dry-run",), ("--retention", "forever")):
        done = empty_rota("prune", *words)
        assert (done.code, done.out) == (0, "no finished run is old enough to be removed\n")
        assert empty_rota("prune", *words, "--json").json() == {"pruned": [], "next": None}


def test_prune_dry_run_counts_and_removes_nothing(empty_rota: Rota, old_runs_dsn: str) -> None:
    done = empty_rota("prune", "--dry-run", "--retention", "1d")

    heading, default, images, total = [line.split() for line in done.out.splitlines()]
    assert done.code == 0
    assert heading == ["queue", "outcome", "runs", "jobs"]
    assert default == ["default", "succeeded", "2,500", "2,500"]
    assert images == ["images", "failed", "3", "3"]
    assert " ".join(total) == "2,503 runs of 2,503 jobs would be removed"
    assert count_jobs(old_runs_dsn) == 2503


def test_prune_removes_old_runs_and_prints_counts(empty_rota: Rota, old_runs_dsn: str) -> None:
    done = empty_rota("prune")

    assert done.code == 0
    assert done.out.splitlines()[-1] == "2,500 runs of 2,500 jobs removed"
    assert count_jobs(old_runs_dsn) == 3


def test_prune_json_prints_counts_as_list(empty_rota: Rota, old_runs_dsn: str) -> None:
    expected = [{"queue": "default", "outcome": "succeeded", "runs": 2500, "jobs": 2500}]

    assert empty_rota("prune", "--dry-run", "--json").json()["pruned"] == expected
    assert empty_rota("prune", "--json").json()["pruned"] == expected
    assert count_jobs(old_runs_dsn) == 3


def test_prune_and_start_write_audit_rows(empty_rota: Rota, old_runs_dsn: str) -> None:
    empty_rota("prune", "--dry-run")
    empty_rota("start", "echo", "value=1")
    empty_rota("start", "-a", "shop:app", "echo", "value=1")
    empty_rota("prune")

    entries = empty_rota("audit", "--json").json()["entries"]

    pruned = [each["detail"]["runs"] for each in entries if each["action"] == "prune runs"]
    assert sum(pruned) == 2500
    assert [each["action"] for each in entries][len(pruned) :] == ["start run", "start run"]


def test_prune_retention_option_overrides_the_setting(
    empty_rota: Rota, old_runs_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RETENTION", "forever; images: 1d")

    assert empty_rota("prune", "--dry-run", "--json").json()["pruned"][0]["queue"] == "images"
    assert empty_rota("prune", "--retention", "forever", "--json").json()["pruned"] == []
    assert empty_rota("prune").out.splitlines()[-1] == "3 runs of 3 jobs removed"
    assert count_jobs(old_runs_dsn) == 2500


def test_prune_child_run_is_removed_with_its_parent(empty_rota: Rota, empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as connection:
        for id, part_of in ((10, None), (11, [10])):
            connection.execute(
                "insert into rota.runs (id, created, input, jobs, successors)"
                " values (%s, rota.clock() - interval '40 days', '{}', '{}', %s)",
                (id, part_of),
            )
            connection.execute(
                "insert into rota.outcomes (job, at, state, attempt)"
                " values (%s, rota.clock() - interval '40 days', 'succeeded', 1)",
                (id,),
            )

    assert empty_rota("prune").out.splitlines()[-1] == "2 runs of 0 jobs removed"


def test_prune_invalid_retention_is_refused(empty_rota: Rota) -> None:
    done = empty_rota("prune", "--retention", "7")

    assert (done.code, done.out) == (USAGE_ERROR, "")
    assert "'7' has no unit (7d would be days)" in done.complaint


def test_prune_beside_another_pruner_times_out(
    empty_rota: Rota, old_runs_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "TURN_TIMEOUT_SECONDS", 0.1)
    with psycopg.connect(old_runs_dsn) as connection:
        connection.execute(
            "select pg_advisory_xact_lock(%s::int, %s::int)", (RETENTION, key_of("rota"))
        )
        done = empty_rota("prune")

    assert done.code == FAILED
    assert "another process has been removing runs for 0.1 s" in done.complaint


def test_prune_on_terminal_shows_progress(empty_rota: Rota, old_runs_dsn: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**Terminal(old_runs_dsn).environment, "COLUMNS": "80", "TERM": "xterm-256color"}

    subprocess.run(
        [sys.executable, "-m", "rota", "prune"], stdout=theirs, env=environment, check=True
    )

    os.close(theirs)
    printed = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "2,500 runs of 2,500 jobs so far" in printed
    assert "2,500 runs of 2,500 jobs removed" in printed
