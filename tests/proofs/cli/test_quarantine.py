"""A job that kills its workers, until it is put in quarantine."""

from __future__ import annotations

import re
from pathlib import Path

from support.cli_fixtures import Rota
from support.terminal import Terminal, eventually

SHOP = ("-a", "shop:app")
SOON = {"ROTA_HEARTBEAT_INTERVAL": "0.5", "ROTA_DEAD_AFTER": "8"}


def start(rota: Rota, *words: str) -> str:
    return rota("start", *words).out.splitlines()[0]


def state(rota: Rota, run: str) -> object:
    return rota("show", run, "--json").json()["state"]


def test_quarantine_job_that_kills_its_worker_is_listed_and_released(
    terminal: Terminal, empty_rota: Rota, tmp_path: Path
) -> None:
    words = ("worker", "shop:app", "--processes", "2")
    with terminal.program(*words, **SOON) as parent:
        parent.said("up to", times=2)
        run = start(empty_rota, *SHOP, "perilous", f"file={tmp_path / 'safe'}")
        parent.said(f"job {run} (perilous) is in quarantine")
        [dead] = [
            each
            for each in empty_rota("workers", "--all", "--json").json()["workers"]
            if each["state"] == "dead"
        ]
        victim = f"worker {dead['worker']} ({dead['host']})"

        [listed] = empty_rota("quarantine", "--json").json()["jobs"]
        table = empty_rota("quarantine").out
        shown = empty_rota("show", run).out

        assert (listed["job"], listed["run"], listed["crashes"]) == (run, run, 1)
        assert dead["charged_jobs"] == [run]
        assert re.search(
            rf"{run}  perilous  default +2 +1 +\d+ s  lost with {re.escape(victim)}", table
        )
        assert f"run {run} quarantined" in shown
        assert re.search(rf"reason +a worker was lost .*: {re.escape(victim)}\n", shown)
        assert f"`rota release {run}` retries it, `rota cancel {run}` ends it" in shown
        assert re.search(rf"1  lost +{dead['worker']} .* lost with {re.escape(victim)}", shown)

        (tmp_path / "safe").touch()
        assert empty_rota("release", run).out == f"run {run} is queued for a retry\n"
        eventually(lambda: state(empty_rota, run) == "succeeded")

    assert empty_rota("quarantine").out == "no job is in quarantine\n"
