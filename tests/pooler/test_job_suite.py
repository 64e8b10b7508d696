"""Tests of jobs, recovery and coordination, run again through PgBouncer in transaction mode.

`make proofs` runs all of them, `make test` those in which connections matter most. Rota only polls here,
because there is no direct connection past the pooler. Excluded tests are listed with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pooler.bouncer import installed
from rota.testing.server import DatabaseServer

TESTS = Path(__file__).parent.parent

SUITE = [
    "pooler/test_switch.py",
    "engine",
    "cluster/test_flows.py",
    "coord/test_keeper.py",
    "coord/test_leader.py",
    "coord/test_leader_blocks.py",
    "coord/test_leader_many.py",
    "coord/test_lock.py",
    "coord/test_lock_threads.py",
    "coord/test_lock_waiting.py",
    "coord/test_once.py",
    "coord/test_rate.py",
    "coord/test_semaphore.py",
    "schedules/test_policies.py",
    "schedules/test_ticks.py",
    "store/test_cancel.py",
    "store/test_checkpoints.py",
    "store/test_claim.py",
    "store/test_complete.py",
    "store/test_lock_tokens.py",
    "store/test_locks.py",
    "store/test_quarantine.py",
    "store/test_reap.py",
    "store/test_reaping.py",
    "store/test_retention.py",
    "store/test_role_settings.py",
    "store/test_signals.py",
    "store/test_start.py",
    "store/test_steps.py",
    "store/test_suspend.py",
    "store/test_timers.py",
]

# Slow tests that a pooler does not affect.
APART = {
    "engine/test_large_flows.py": "about size",
    "engine/test_processes.py": "about processes beside a worker; they have no connection",
    "engine/test_isolated_code.py": "the same",
    "engine/test_isolation.py": "the same",
    "engine/test_deadlines.py": "about executors; they have no connection",
    "engine/test_abandoned_steps.py": "about code, whatever it is kept with",
    "engine/test_branches.py": "the same",
    "engine/test_intake.py": "the same",
    "engine/test_lines.py": "the same",
    "engine/test_plain_steps.py": "the same",
    "engine/test_replays.py": "the same",
    "engine/test_step_failures.py": "the same",
    "engine/test_waiting_nodes.py": "the same",
}

LONG = os.environ.get("ROTA_TEST_LONG") == "1"

MATTER = [
    "pooler/test_switch.py",
    "engine/test_drain.py",
    "engine/test_exchange.py",
    "engine/test_liveness.py",
    "engine/test_transaction.py",
    "coord/test_leader.py",
    "coord/test_lock.py",
    "coord/test_once.py",
    "store/test_claim.py",
    "store/test_reaping.py",
    "store/test_role_settings.py",
]

EXEMPT = {
    "engine/test_exchange.py::test_the_listener_comes_back_after_its_connection_is_lost": "LISTEN",
    "engine/test_exchange.py::test_jobs_committed_late_and_out_of_order_are_found_soon": (
        "the producers are connections of the user's own, which prepare"
    ),
    "engine/test_liveness.py::test_a_thousand_beats_are_updates_in_place": (
        "counts what sessions tell when they end, and the pooler's do not"
    ),
    "cluster/test_flows.py::test_the_same_without_the_lock_strands_runs": "about that lock",
    "cluster/test_signals.py::test_the_same_without_the_lock_or_the_look_loses_signals": (
        "about that lock"
    ),
    "engine/test_calls_again.py::test_ten_thousand_calls_are_made_and_waited_for": "about size",
    "store/test_reaping.py::test_a_thousand_claims_it_cannot_have_keep_it_from_none_it_can": (
        "about size"
    ),
    "store/test_cancel.py::test_cancelling_tells_those_who_wait": "LISTEN",
    "store/test_quarantine.py::test_released_it_is_tried_again_as_if_nothing_had_been": "LISTEN",
    "store/test_quarantine.py::"
    "test_two_who_let_out_a_run_do_not_deadlock_whatever_the_order_of_its_rows": (
        "makes them meet with settings of their sessions"
    ),
    "store/test_role_settings.py::test_a_connection_says_what_it_relies_on": (
        "about settings of a session; test_recognising.py has the same for transactions"
    ),
    "store/test_signals.py::test_workers_are_told_of_who_was_woken_and_of_nothing_else": "LISTEN",
    "store/test_start.py::test_news_rides_along_only_when_asked": "LISTEN",
    "store/test_start.py::test_sql_alone_can_start_a_job_and_wakes_workers": "LISTEN",
}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tests_of_jobs_and_recovery_pass_through_a_pooler(rota_server: DatabaseServer) -> None:
    if not installed():
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
        + [f"tests/{name}" for name in (SUITE if LONG else MATTER)],
        cwd=TESTS.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]


@pytest.mark.parametrize("name", [*SUITE, *MATTER, *APART, *EXEMPT])
def test_what_is_named_is_there(name: str) -> None:
    path, _, test = name.partition("::")
    assert (TESTS / path).exists()
    assert not test or f"def {test}(" in (TESTS / path).read_text()
