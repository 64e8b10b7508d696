"""`rota dev`: a saved change restarts the app, and Ctrl-C ends everything."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.demo_program import processes
from support.dev_project import Project
from support.terminal import Program, children_of, eventually, is_alive


@pytest.mark.slow
def test_dev_saved_change_restarts_app_without_losing_jobs(
    project: Project, dev: Program, home: Path
) -> None:
    dev.said("uses the embedded PostgreSQL")
    dev.said("] dashboard at http:")
    assert project.page() == 200
    started = project.terminal.run("--dsn", "local", "start", "-a", "site_app:app", "build")
    run = started.out.strip()
    eventually(lambda: project.noted("one attempt 1"))
    before = children_of(dev.pid)

    # A syntax error: the running processes continue.
    project.save("one", text="def broken(:")
    dev.said("SyntaxError")
    dev.said("fix the file and save it")
    assert children_of(dev.pid) == before

    # It compiles, but the import fails.
    project.save("one", text="raise RuntimeError('not today')")
    dev.said("RuntimeError: not today")
    dev.said("did not start")
    assert not any("rota/cli" in line for line in dev.said("File "))
    assert project.page() == 200  # served by the last code that worked

    project.save("two")

    eventually(lambda: project.noted("two attempt 1"))  # interrupted by a restart: not counted
    dev.said("] dashboard at http:", times=2)
    assert project.page() == 200
    shown = project.terminal.run("--dsn", "local", "show", run)
    assert '"two"' in shown.out
    after = children_of(dev.pid)
    assert len(after) == 2
    assert not set(after) & set(before)

    # A process that dies by itself is replaced.
    for pid in after:
        if "worker" in Path(f"/proc/{pid}/cmdline").read_text():
            dev_worker = pid

    os.kill(dev_worker, signal.SIGKILL)
    dev.said("the worker was ended by SIGKILL")
    eventually(lambda: len(children_of(dev.pid)) == 2)

    dev.tell(signal.SIGINT)
    ended = dev.ended()
    assert ended.code == 0
    assert not any(is_alive(pid) for pid in after)
    eventually(lambda: not processes(home))
