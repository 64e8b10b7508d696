"""Jobs with code that changed between attempts: the reason of the quarantine, and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from support.cli_fixtures import Rota
from support.terminal import Terminal, eventually

BOARD = ("-a", "board:app")
WHY = "its code has changed: it reached step 'new', but its journal has step 'old'"


def shown(rota: Rota, run: str) -> Any:
    return rota("show", run, "--json").json()


def start_changed_run(rota: Rota, file: Path) -> str:
    """Start a run that fails once, waits, and then replays against changed code."""
    run = rota("start", *BOARD, "changing", f"file={file}").out.strip()
    eventually(lambda: shown(rota, run)["awaits"])
    file.touch()
    rota("signal", run, "go")
    eventually(lambda: shown(rota, run)["state"] == "quarantined")
    return run


def test_quarantine_command_changed_code_names_the_mismatch(durable: Rota, tmp_path: Path) -> None:
    run = start_changed_run(durable, tmp_path / "new")

    [line] = [
        each
        for each in durable("quarantine", "--limit", "1000").out.splitlines()
        if each.split()[0] == run
    ]
    [listed] = [
        each for each in durable("quarantine", "--json").json()["jobs"] if str(each["job"]) == run
    ]

    assert line.endswith(WHY)
    assert (listed["crashes"], listed["error"]["type"]) == (0, "rota.errors.ReplayMismatch")


def test_show_changed_code_prints_remedies_that_resume_the_run(
    durable: Rota, tmp_path: Path
) -> None:
    run = start_changed_run(durable, tmp_path / "new")

    printed = durable("show", run).out

    assert re.search(rf"reason +{WHY}\n", printed)
    assert re.search(r"next steps +deploy code that reaches step 'old' here \(ctx.version", printed)
    for command in (f"release {run}", f"cancel {run}", f"fork {run} --from-step NAME"):
        assert f"`rota {command}`" in printed
    assert "sent, not received yet" in printed

    (tmp_path / "new").unlink()
    assert durable("release", run).out == f"run {run} is queued for a retry\n"
    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == "old"


def test_quarantine_help_mentions_changed_code(terminal: Terminal) -> None:
    said = " ".join(terminal.run("quarantine", "--help").out.split())

    assert "their code has changed" in said
