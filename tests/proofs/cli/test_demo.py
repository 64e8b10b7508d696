"""`rota demo`, killed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from support.demo_program import DemoProgram, processes
from support.terminal import eventually


def test_demo_killed_leaves_no_process(start_demo: Callable[..., DemoProgram], home: Path) -> None:
    demo = start_demo("--seconds", "30")
    demo.line("a running flow")

    demo.tell(signal.SIGKILL)

    eventually(lambda: not processes(home))
