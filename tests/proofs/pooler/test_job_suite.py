"""Tests of jobs, recovery and coordination, run again through PgBouncer in transaction mode.

Rota only polls here, because there is no direct connection past the pooler. `support.pooled_suite` lists
the tests, and the excluded ones with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rota.testing.server import DatabaseServer
from support.pgbouncer import pgbouncer_path
from support.places import ROOT
from support.pooled_suite import APART, EXEMPT, SUITE


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_job_suite_through_pooler_passes(rota_server: DatabaseServer) -> None:
    if not pgbouncer_path():
        pytest.skip("there is no PgBouncer here; on Debian and Ubuntu: apt install pgbouncer")
    environment = dict(os.environ, ROTA_TEST_POOLER="1", ROTA_TEST_DATABASE_URL=rota_server.dsn)
    left_out = [f"--deselect=tests/{name}" for name in EXEMPT]
    left_out += [f"--ignore=tests/{name}" for name in APART]
    done = subprocess.run(
        # The tests mostly wait, so several run in parallel.
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "-p",
            "no:cacheprovider",
            "--timeout",
            "60",
            *left_out,
        ]
        + [f"tests/{name}" for name in SUITE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
