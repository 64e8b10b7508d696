"""Phases of the test run, each a list of prefixes of test ids. The marks derive from these lists, and so do
the files that are collected for a phase (`python tests/phases.py crowd`): collecting all files takes ten
seconds. Every test belongs to exactly one phase.
"""

from __future__ import annotations

import sys

CROWD = (
    "tests/process/alerts/test_fleet.py",
    "tests/process/chaos/test_short.py",
    "tests/process/cluster/",
    "tests/process/deploy/test_deployed_processes.py",
    "tests/process/flows/test_large_flows.py",
    "tests/process/examples/",
    "tests/process/outage/",
    "tests/proofs/pooler/test_job_suite.py::test_job_suite_through_pooler_passes",
    "tests/process/web/test_drain.py",
    "tests/process/web/test_long_jobs.py",
    "tests/process/web/test_serve.py",
)
ALONE = (
    "tests/engine/coord/test_rate_limit_frozen.py::test_rate_limit_frozen_process_lets_waiters_proceed_spaced",
    "tests/engine/worker/test_claim_loop.py::test_worker_idle_makes_at_most_two_round_trips_a_second",
    "tests/engine/worker/test_notifier.py::test_notifier_spaced_notifications_are_each_sent_at_once",
    "tests/engine/schedules/test_ticks.py::test_scheduler_foreign_due_schedule_causes_backoff_not_delay",
)

# Run only with ROTA_TEST_LONG=1 (`make proofs`): each is expensive, and a cheaper test covers another case
# or a smaller form.
PROOFS = (
    "tests/proofs/deploy/",
    "tests/proofs/cluster/test_service_balancer.py",
    "tests/unit/architecture/test_import.py::test_import_rota_takes_under_three_times_its_dependencies",
    "tests/engine/worker/test_claim_loop.py::test_claim_job_committed_late_is_found_within_100_ms",
    "tests/proofs/schedules/test_ten_thousand_schedules.py",
    "tests/unit/test_timetable.py::test_cron_year_of_minutes_is_counted_within_20_milliseconds",
    "tests/unit/test_timetable.py::test_cron_next_tick_is_found_within_100_microseconds",
    "tests/process/chaos/test_short.py::test_chaos_mutant_is_found_by_the_checker[M1]",
    "tests/process/chaos/test_short.py::test_chaos_durable_functions_survive_all_faults",
    "tests/process/cli/test_demo.py::test_demo_killed_leaves_no_process",
    "tests/process/cli/test_dev.py::test_dev_saved_change_restarts_app_without_losing_jobs",
    "tests/engine/cli/test_durable_guide.py::test_durable_guide_first_example_survives_sigkill",
    "tests/engine/cli/test_durable_guide.py::test_onboarding_example_prints_welcome_and_reminder",
    "tests/proofs/cli/test_leaders_guide.py",
    "tests/proofs/cli/test_locks_guide.py",
    "tests/proofs/cli/test_once_guide.py",
    "tests/engine/cli/test_quarantine.py::test_quarantine_job_that_kills_its_worker_is_listed_and_released",
    "tests/proofs/cli/test_services_guide.py",
    "tests/engine/cli/test_show_steps.py::test_show_step_table_fits_the_terminal[60]",
    "tests/process/cli/test_worker.py::test_worker_process_ended_by_signal_is_replaced",
    "tests/process/cli/test_worker.py::test_worker_processes_receive_ctrl_c_once",
    "tests/process/cli/test_worker.py::test_worker_isolated_job_process_ends_when_parent_is_killed",
    "tests/process/cli/test_worker.py::test_worker_processes_drained_are_not_replaced_and_end_parent",
    "tests/process/cli/test_worker_services.py::test_worker_command_services_spread_over_processes",
    "tests/engine/cli/test_workers.py::test_drain_wait_timeout_exits_with_failure",
    "tests/engine/cli/test_workers.py::test_workers_command_fits_the_terminal[120]",
    "tests/process/cluster/test_lock_contenders.py::test_lock_mutant_is_found_by_the_contest",
    "tests/process/cluster/test_durable_kills.py::test_durable_steps_mutant_is_detected",
    "tests/process/cluster/test_durable_kills.py::test_durable_steps_after_kill_at_any_await_have_expected_effects[threaded]",
    "tests/process/cluster/test_flows.py::test_flows_without_successor_lock_strand_runs",
    "tests/process/cluster/test_leader_processes.py::test_leader_killed_behind_pooler_is_replaced_after_its_lease",
    "tests/process/cluster/test_leaders.py::test_leaders_mutant_is_found",
    "tests/proofs/cluster/test_many_sleepers.py",
    "tests/process/cluster/test_service_kills.py::test_service_mutant_is_detected",
    "tests/process/cluster/test_signals.py::test_signals_sent_at_timeout_continue_the_run_once",
    "tests/process/cluster/test_signals.py::test_signals_without_lock_or_second_check_are_lost",
    "tests/engine/coord/test_renewal_thread.py::test_renewal_of_500_locks_takes_few_statements",
    "tests/proofs/coord/test_renewal_thread_outages.py",
    "tests/engine/coord/test_leader_shared_connection.py::test_leader_thirty_standby_names_poll_once_a_second",
    "tests/process/coord/test_lock_clocks.py::test_lock_acquirer_with_stepped_clock_does_not_acquire",
    "tests/engine/coord/test_once_completion.py::test_once_killed_or_frozen_caller_is_replaced_after_expiry",
    "tests/engine/coord/test_semaphore.py::test_semaphore_permit_of_killed_or_frozen_process_is_reused[19]",
    "tests/engine/coord/test_service_outages.py::test_service_silent_outage_cancels_iteration_and_recovers",
    "tests/unit/docs/test_tutorial.py::test_tutorial_run_survives_killed_worker",
    "tests/engine/execution/test_process_executor.py::test_stop_request_obeyed_by_code_keeps_process[Stop.LOST",
    "tests/engine/execution/test_process_executor.py::test_executor_deaths_timeouts_and_stops_end_each_job_once",
    "tests/process/examples/test_etl.py::test_etl_worker_killed_after_commit_stages_file_once[mutant]",
    "tests/process/examples/test_market.py::test_market_known_bugs_are_found",
    "tests/process/localpg/test_account.py::test_account_uid_without_name_starts_in_a_namespace",
    "tests/proofs/localpg/test_crashes.py",
    "tests/process/localpg/test_sharing.py::test_server_stops_when_app_is_killed_during_start",
    "tests/process/localpg/test_sharing.py::test_start_after_kill_of_last_app_gets_working_server",
    "tests/process/localpg/test_sharing.py::test_start_concurrent_apps_share_one_server",
    "tests/process/outage/test_lost_database.py::test_worker_in_outage_waits_quietly_and_resumes[a pooler]",
    "tests/proofs/pooler/test_job_suite.py::test_job_suite_through_pooler_passes",
    "tests/process/pooler/test_services.py::test_service_killed_behind_pooler_is_replaced_after_its_lease",
    "tests/engine/schedules/test_schedules_guide.py::test_example_program_prints_ticks_greeting_and_report",
    "tests/engine/schedules/test_schedules_guide.py::test_guide_first_example_ticks_every_second",
    "tests/store/test_step_plans.py::test_step_and_signal_statements_among_many_sleepers_read_few_rows",
    "tests/store/test_step_plans.py::test_step_and_signal_statements_read_few_rows[analysed empty",
    "tests/store/test_lock_plans.py::test_lock_statements_read_few_rows[0-full]",
    "tests/store/test_lock_plans.py::test_lock_statements_read_few_rows[1000-empty]",
    "tests/store/test_lock_plans.py::test_lock_statements_read_few_rows[1000-never]",
    "tests/store/test_job_plans.py::test_job_statements_among_many_rows_read_few_by_index",
    "tests/store/test_quarantine.py::test_quarantine_stress_leaves_each_job_in_one_place",
    "tests/store/test_reap_plans.py::test_reap_statements_among_many_rows_read_few",
    "tests/store/test_reap_plans.py::test_reap_statements_read_few_rows[analysed empty-1000]",
    "tests/store/test_reap_plans.py::test_reap_statements_read_few_rows[analysed full-0]",
    "tests/store/test_reap_plans.py::test_reap_statements_read_few_rows[never analysed-1000]",
    "tests/store/test_role_settings.py::test_program_result_is_same_under_any_role_settings",
    "tests/store/test_schedule_plans.py::test_schedule_statements_among_many_read_few_rows",
    "tests/store/test_testing.py::test_plugin_works_in_another_project[auto",
    "tests/process/tracing/test_worker_log.py::test_worker_log_of_all_processes_is_json",
    "tests/process/tracing/test_worker_log.py::test_worker_log_text_lines_name_their_job",
    "tests/process/web/test_serve.py::test_serve_uncancellable_request_does_not_block_shutdown[/plain]",
)

PARTS = {"crowd": CROWD, "alone": ALONE, "proofs": PROOFS}


def paths(part: str) -> list[str]:
    return sorted({name.partition("::")[0] for name in PARTS[part]})


if __name__ == "__main__":
    print(*paths(sys.argv[1]))
