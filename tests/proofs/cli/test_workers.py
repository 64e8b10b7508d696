"""`rota drain --wait` with a worker that does not end in time."""

from __future__ import annotations

from pathlib import Path

from rota.cli.exit_codes import FAILED
from support.terminal import Program, Terminal


def test_drain_wait_timeout_exits_with_failure(
    terminal: Terminal, tmp_path: Path, busy: tuple[Program, str]
) -> None:
    worker, number = busy

    done = terminal.run("drain", number, "--wait", "0.5")

    assert done.code == FAILED
    assert f"worker {number} is still running after 0.5 s with 1 job" in done.err
    (tmp_path / "go").touch()
    assert worker.ended().code == 0
