"""The ETL flow, with workers killed in every phase: every sale is staged once and published once."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import psycopg
import pytest

from support.etl import APP, CENTS, DAY, FILES, SALES, Etl, Make
from support.scale import scale
from support.server_process import free_port

pytestmark = [pytest.mark.slow]


def test_etl_command_with_approval_publishes_the_day(programs: Make) -> None:
    crew = programs(ETL_PACE="0.05", ETL_SETTLE="0.5")
    etl = crew.start("examples.etl", DAY)
    words = etl.says(r"rota (signal -a \S+ \d+ approval true)")[1].split()
    etl.says("waits for your approval and occupies no worker")
    crew.run("rota", *words)

    assert etl.ended() == 0, etl.said
    assert re.search(rf"{DAY}: 15,176.91 published", etl.said)
    assert re.search(r"clean_file \(\d+\) failed on attempt 1; retrying in", etl.said)
    # The same day returns the same run.
    assert "already started" in crew.run("examples.etl", DAY)


def test_etl_refused_over_http_discards_the_day(programs: Make) -> None:
    crew, port = programs(ETL_PACE="0.02", ETL_SETTLE="0"), free_port()
    words = ("dashboard", APP, "--auth", "local", "--port", f"{port}")
    crew.start("rota", *words, ROTA_LOCAL_KEY="k" * 22)
    etl = crew.start("examples.etl", DAY)
    run = etl.says(r"rota signal -a \S+ (\d+) approval true")[1]
    crew.until(lambda: is_listening(port))
    asked = Request(
        f"http://127.0.0.1:{port}/api/v1/runs/{run}/signals",
        json.dumps({"name": "approval", "payload": False}).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {'k' * 22}"},
    )
    urlopen(asked, timeout=60).close()

    assert etl.ended() == 0, etl.said
    assert f"{DAY}: discarded" in etl.said
    assert crew.rows("select count(*) from staged") == [(0,)]
    assert crew.rows("select count(*) from sales") == [(0,)]


def is_listening(port: int) -> bool:
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        return True
    return False


def test_etl_workers_killed_in_each_phase_lose_and_repeat_nothing(programs: Make) -> None:
    etl = Etl(programs(ETL_PACE="0.1", ETL_SETTLE="5"))
    etl.start(2)

    # During cleaning: one worker dies, and the other continues with its jobs.
    etl.until("clean_file", "succeeded")
    etl.workers[0].kill()
    etl.until("etl.settle", "sleeping")
    assert etl.staged() == {f"{DAY}/till-{n:02}.csv": SALES for n in range(1, FILES + 1)}

    # While the flow sleeps or waits for the signal, no worker is needed.
    etl.kill_all()
    etl.start(1)
    etl.until("etl.approval", "sleeping")
    etl.kill_all()
    assert etl.programs.rows("select rota.signal(%s, 'approval', 'true')", etl.run)

    # During publishing: the rows are written but not committed.
    with psycopg.connect(etl.programs.dsn) as blocking:
        blocking.execute("lock table staged in exclusive mode")
        etl.start(1)
        etl.until("etl.publish", "running")
        publishing = "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        etl.programs.until(lambda: etl.programs.rows(publishing))
        etl.kill_all()
        blocking.rollback()
    etl.start(1)

    etl.ends()
    assert etl.state("etl.publish") == ["succeeded"]
    assert etl.sum_of("sales") == CENTS
    assert etl.staged() == {}
    assert len(etl.programs.rows("select from sales")) == 3


@pytest.mark.parametrize(
    "mutant", scale([""], ["", "yes"]), ids=lambda mutant: "mutant" if mutant else "as it is"
)
def test_etl_worker_killed_after_commit_stages_file_once(
    programs: Make, tmp_path: Path, mutant: str
) -> None:
    """For comparison: if the job's completion is not part of the commit, its rows are inserted twice."""
    notes = tmp_path / "notes"
    widened = {"WIDEN": "clean_file", "NOTES": f"{notes}", "MUTANT": mutant}
    etl = Etl(programs(ETL_PACE="0.02", **widened), "etl_pause_after_commit:app")
    etl.start(1)
    etl.programs.until(notes.exists)
    etl.kill_all()
    etl.start(1, WIDEN="")
    etl.until("etl.clean", "succeeded")

    counts = set(etl.staged().values())
    assert counts == ({SALES, 2 * SALES} if mutant else {SALES})
