"""`rota prune`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import psycopg
import pytest

from rota.cli import prune
from rota.cli.exit_codes import FAILED, USAGE_ERROR
from rota.store.advisory_locks import RETENTION, key_of

from .conftest import Rota
from .terminal import Terminal

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


def history(dsn: str, count: int, days: int, queue: str, state: str = "succeeded") -> None:
    values = {"count": count, "days": days, "queue": queue, "state": state}
    with psycopg.connect(dsn) as connection:
        connection.execute(HISTORY, values)


def left(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        [count] = connection.execute("select count(*) from rota.jobs").fetchone() or [0]
    return int(count)


@pytest.fixture
def past(alone: Rota, empty_dsn: str) -> str:
    """Create 2,500 runs that the default retention removes, and three that it keeps."""
    history(empty_dsn, 2500, 8, "default")
    history(empty_dsn, 3, 8, "images", "failed")
    return empty_dsn


def test_nothing_old_is_said_in_words_and_as_json(alone: Rota) -> None:
    for words in ((), ("--dry-run",), ("--retention", "forever")):
        done = alone("prune", *words)
        assert (done.code, done.out) == (0, "no finished run is old enough to be removed\n")
        assert alone("prune", *words, "--json").out == "[]\n"


def test_a_dry_run_counts_and_removes_nothing(alone: Rota, past: str) -> None:
    done = alone("prune", "--dry-run", "--retention", "1d")

    heading, default, images, total = [line.split() for line in done.out.splitlines()]
    assert done.code == 0
    assert heading == ["queue", "outcome", "runs", "jobs"]
    assert default == ["default", "succeeded", "2,500", "2,500"]
    assert images == ["images", "failed", "3", "3"]
    assert " ".join(total) == "2,503 runs of 2,503 jobs would be removed"
    assert left(past) == 2503


def test_pruning_removes_all_that_is_old_and_says_what_went(alone: Rota, past: str) -> None:
    done = alone("prune")

    assert done.code == 0
    assert done.out.splitlines()[-1] == "2,500 runs of 2,500 jobs removed"
    assert left(past) == 3


def test_for_programs_it_is_a_list(alone: Rota, past: str) -> None:
    expected = [{"queue": "default", "outcome": "succeeded", "runs": 2500, "jobs": 2500}]

    assert alone("prune", "--dry-run", "--json").json() == expected
    assert alone("prune", "--json").json() == expected
    assert left(past) == 3


def test_the_setting_is_obeyed_unless_it_is_said_differently(
    alone: Rota, past: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_RETENTION", "forever; images: 1d")

    assert alone("prune", "--dry-run", "--json").json()[0]["queue"] == "images"
    assert alone("prune", "--retention", "forever", "--json").json() == []
    assert alone("prune").out.splitlines()[-1] == "3 runs of 3 jobs removed"
    assert left(past) == 2500


def test_what_was_a_part_of_a_run_goes_with_it(alone: Rota, empty_dsn: str) -> None:
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

    assert alone("prune").out.splitlines()[-1] == "2 runs of 0 jobs removed"


def test_a_keep_that_cannot_be_read_is_a_mistake(alone: Rota) -> None:
    done = alone("prune", "--retention", "7")

    assert (done.code, done.out) == (USAGE_ERROR, "")
    assert "'7' has no unit (7d would be days)" in done.complaint


def test_who_never_gets_a_turn_is_told(
    alone: Rota, past: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "TURN_TIMEOUT_SECONDS", 0.1)
    with psycopg.connect(past) as connection:
        connection.execute(
            "select pg_advisory_xact_lock(%s::int, %s::int)", (RETENTION, key_of("rota"))
        )
        done = alone("prune")

    assert done.code == FAILED
    assert "another process has been removing runs for 0.1 s" in done.complaint


def test_on_a_terminal_it_shows_how_far_it_is(alone: Rota, past: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**Terminal(past).environment, "COLUMNS": "80", "TERM": "xterm-256color"}

    subprocess.run(
        [sys.executable, "-m", "rota", "prune"], stdout=theirs, env=environment, check=True
    )

    os.close(theirs)
    printed = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "2,500 runs of 2,500 jobs so far" in printed
    assert "2,500 runs of 2,500 jobs removed" in printed
