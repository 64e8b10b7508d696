"""Tests that are run again through PgBouncer, by paths below tests/, and tests that are left out."""

from __future__ import annotations

SUITE = [
    "engine/pooler/test_pooler_switch.py",
    "engine/durable",
    "engine/execution",
    "engine/flows",
    "engine/worker",
    "process/cluster/test_flows.py",
    "engine/coord/test_renewal_thread.py",
    "engine/coord/test_leader.py",
    "engine/coord/test_leader_term_block.py",
    "engine/coord/test_leader_shared_connection.py",
    "engine/coord/test_lock.py",
    "engine/coord/test_lock_threads.py",
    "engine/coord/test_lock_waiting.py",
    "engine/coord/test_once.py",
    "engine/coord/test_rate_limit.py",
    "engine/coord/test_semaphore.py",
    "engine/schedules/test_policies.py",
    "engine/schedules/test_ticks.py",
    "proofs/coord/test_leader_shared_connection.py",
    "proofs/coord/test_renewal_thread.py",
    "proofs/store/test_quarantine.py",
    "proofs/store/test_role_settings.py",
    "store/test_cancel.py",
    "store/test_checkpoints.py",
    "store/test_claim.py",
    "store/test_complete.py",
    "store/test_lock_tokens.py",
    "store/test_locks.py",
    "store/test_quarantine.py",
    "store/test_reap.py",
    "store/test_reaper.py",
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
    "process/flows/test_large_flows.py": "about size",
    "engine/execution/test_process_executor.py": "about processes beside a worker; they have no connection",
    "engine/execution/test_isolated_code.py": "the same",
    "engine/execution/test_isolated_in_worker.py": "the same",
    "engine/execution/test_deadlines.py": "about executors; they have no connection",
    "engine/durable/test_abandoned_steps.py": "about code, whatever it is kept with",
    "engine/durable/test_branches.py": "the same",
    "engine/worker/test_claim_planner.py": "the same",
    "engine/durable/test_branch_replay.py": "the same",
    "engine/durable/test_sync_steps.py": "the same",
    "engine/durable/test_replays.py": "the same",
    "engine/durable/test_step_failures.py": "the same",
    "engine/flows/test_waiting_nodes.py": "the same",
}


EXEMPT = {
    "engine/worker/test_claim_loop.py::test_listener_reconnects_after_lost_connection": "LISTEN",
    "engine/worker/test_liveness.py::test_heartbeat_row_updates_are_all_hot": (
        "counts what sessions tell when they end, and the pooler's do not"
    ),
    "engine/durable/test_child_runs_after_retry.py::test_map_of_ten_thousand_calls_returns_all_results": (
        "about size"
    ),
    "store/test_reaper.py::test_reaper_thousand_locked_claims_do_not_block_a_free_one": (
        "about size"
    ),
    "store/test_cancel.py::test_cancel_notifies_registered_waiters": "LISTEN",
    "store/test_quarantine.py::test_release_quarantined_job_is_queued_with_reset_counters": "LISTEN",
    "store/test_quarantine.py::test_release_quarantined_run_concurrently_does_not_deadlock": (
        "makes them meet with settings of their sessions"
    ),
    "store/test_role_settings.py::test_connection_overrides_role_settings": (
        "about settings of a session; test_pooler_detection.py has the same for transactions"
    ),
    "store/test_signals.py::test_signal_notifies_workers_only_of_woken_jobs": "LISTEN",
    "store/test_start.py::test_start_notifies_only_if_requested": "LISTEN",
    "store/test_start.py::test_start_sql_function_queues_job_and_notifies": "LISTEN",
}
