"""An embedded server for a user without a name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.app_processes import App, fetch_value

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@as_root
def test_account_uid_without_name_starts_in_a_namespace(
    temporary_home: Path,
    shared_python: tuple[str, dict[str, str]],
    start_app: Callable[..., App],
) -> None:
    python, environment = shared_python
    number = 54321
    os.chown(temporary_home, number, number)
    if subprocess.run(["unshare", "--user", "true"], user=number, check=False).returncode:
        pytest.skip("user namespaces are refused here")

    one = start_app(temporary_home / "pg", python=python, env=environment, user=number)
    assert fetch_value(one.started(), "select 1") == 1
    one.stop()
    os.chown(temporary_home, 0, 0)
