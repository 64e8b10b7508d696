"""Jobs with code that changed between attempts: the reason of the quarantine, and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .conftest import Rota
from .terminal import Terminal, eventually

BOARD = ("-a", "board:app")
WHY = "its code has changed: it reached step 'new', but its journal has step 'old'"


def shown(rota: Rota, run: str) -> Any:
    return rota("show", run, "--json").json()


def changed(rota: Rota, file: Path) -> str:
    """Start a run that fails once, waits, and then replays against changed code."""
    run = rota("start", *BOARD, "changing", f"file={file}").out.strip()
    eventually(lambda: shown(rota, run)["awaits"])
    file.touch()
    rota("signal", run, "go")
    eventually(lambda: shown(rota, run)["state"] == "quarantined")
    return run


def test_the_quarantine_says_what_has_changed_also_after_a_failed_attempt(
    durable: Rota, tmp_path: Path
) -> None:
    run = changed(durable, tmp_path / "new")

    [line] = [
        each
        for each in durable("quarantine", "--limit", "1000").out.splitlines()
        if each.split()[0] == run
    ]
    [listed] = [each for each in durable("quarantine", "--json").json() if str(each["job"]) == run]

    assert line.endswith(WHY)
    assert (listed["crashes"], listed["error"]["type"]) == (0, "rota.errors.ReplayMismatch")


def test_the_run_says_what_to_do_and_goes_on_once_that_is_done(
    durable: Rota, tmp_path: Path
) -> None:
    run = changed(durable, tmp_path / "new")

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


def test_help_says_that_code_may_have_changed(terminal: Terminal) -> None:
    said = " ".join(terminal.run("quarantine", "--help").out.split())

    assert "their code has changed" in said
