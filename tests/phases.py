"""Phases of the test run, each a list of prefixes of test ids. The marks derive from these lists, and so do
the files that are collected for a phase (`python tests/phases.py crowd`): collecting all files takes ten
seconds. Every test belongs to exactly one phase.
"""

from __future__ import annotations

import sys

CROWD = (
    "tests/alerts/test_fleet.py",
    "tests/chaos/test_short.py",
    "tests/cluster/",
    "tests/deploy/test_as_deployed.py",
    "tests/engine/test_large_flows.py",
    "tests/examples/",
    "tests/outage/",
    "tests/pooler/test_job_suite.py::test_the_tests_of_jobs_and_recovery",
    "tests/web/test_drain.py",
    "tests/web/test_long_jobs.py",
    "tests/web/test_serve.py",
)
ALONE = (
    "tests/coord/test_rate_frozen.py::test_a_program_that_was_frozen",
    "tests/engine/test_exchange.py::test_an_idle_worker",
    "tests/engine/test_news.py::test_what_comes_one_at_a_time",
    "tests/schedules/test_ticks.py::test_what_nobody_here_knows_neither_hides",
)

# Run only with ROTA_TEST_LONG=1 (`make proofs`): each is expensive, and a cheaper test covers another case
# or a smaller form.
PROOFS = (
    "tests/architecture/test_import.py::test_importing_rota_takes_little_longer",
    "tests/engine/test_exchange.py::test_jobs_committed_late",
    "tests/schedules/test_many.py",
    "tests/unit/test_timetable.py::test_a_year_of_minutes_is_skipped_and_counted_in_no_time",
    "tests/unit/test_timetable.py::test_the_next_one_is_found_in_no_time",
    "tests/chaos/test_short.py::test_a_known_mistake_is_found[M1]",
    "tests/chaos/test_short.py::test_durable_functions_go_on",
    "tests/cli/test_demo.py::test_a_demo_that_is_killed_leaves_no_process",
    "tests/cli/test_dev.py::test_what_is_saved_is_what_runs",
    "tests/cli/test_durable_page.py::test_the_first_example_survives",
    "tests/cli/test_durable_page.py::test_the_onboarding_example",
    "tests/cli/test_leaders_page.py",
    "tests/cli/test_locks_page.py",
    "tests/cli/test_once_page.py",
    "tests/cli/test_quarantine.py::test_a_job_that_kills_is_put_aside",
    "tests/cli/test_services_page.py",
    "tests/cli/test_show_steps.py::test_the_timeline_fits_the_terminal[60]",
    "tests/cli/test_worker.py::test_a_process_that_a_signal_ends_behind",
    "tests/cli/test_worker.py::test_ctrl_c_reaches_each_process_once",
    "tests/cli/test_worker.py::test_no_process_of_a_process_outlives",
    "tests/cli/test_worker.py::test_processes_that_are_drained_are_not_replaced",
    "tests/cli/test_worker_services.py::test_they_spread_over_the_processes_of_one_crew",
    "tests/cli/test_workers.py::test_a_worker_that_has_not_left_in_time",
    "tests/cli/test_workers.py::test_the_list_fits_a_terminal[120]",
    "tests/cluster/test_contenders.py::test_a_known_mistake_is_found",
    "tests/cluster/test_durable_kills.py::test_a_known_mistake_is_seen",
    "tests/cluster/test_durable_kills.py::test_killed_at_any_await_each_step_has_its_effect_once[threaded]",
    "tests/cluster/test_flows.py::test_the_same_without_the_lock",
    "tests/cluster/test_leader_processes.py::test_through_a_pooler_one_that_is_killed",
    "tests/cluster/test_leaders.py::test_a_known_mistake_is_found",
    "tests/cluster/test_many_sleepers.py",
    "tests/cluster/test_monitor.py::test_a_known_mistake_is_seen",
    "tests/cluster/test_signals.py::test_a_signal_that_comes_when_the_time_is_up",
    "tests/cluster/test_signals.py::test_the_same_without",
    "tests/coord/test_keeper.py::test_five_hundred_are_renewed",
    "tests/coord/test_keeper_outages.py",
    "tests/coord/test_leader_many.py::test_standing_by_for_thirty_names",
    "tests/coord/test_lock_clocks.py::test_who_wants_it_does_not_get_it",
    "tests/coord/test_once_ends.py::test_who_is_killed_or_frozen_is_replaced",
    "tests/coord/test_semaphore.py::test_the_permit_of_one_who_is_killed_or_frozen_comes_back[19]",
    "tests/coord/test_service_outages.py::test_with_the_line_dead",
    "tests/docs/test_tutorial.py::test_whoever_follows_it",
    "tests/engine/test_processes.py::test_code_that_is_told_to_stop_and_does[Stop.LOST",
    "tests/engine/test_processes.py::test_many_jobs_end_once_each",
    "tests/examples/test_etl.py::test_killed_when_it_has_committed_a_file_is_staged_once[mutant]",
    "tests/examples/test_market.py::test_a_known_mistake_is_seen",
    "tests/localpg/test_account.py::test_a_user_number_without_a_name",
    "tests/localpg/test_crashes.py",
    "tests/localpg/test_sharing.py::test_an_app_killed_at_any_moment",
    "tests/localpg/test_sharing.py::test_an_app_that_arrives_while_the_last_one_is_killed",
    "tests/localpg/test_sharing.py::test_three_apps_at_once",
    "tests/outage/test_lost_database.py::test_a_worker_waits_quietly_and_goes_on_by_itself[a pooler]",
    "tests/pooler/test_job_suite.py::test_the_tests_of_jobs_and_recovery",
    "tests/pooler/test_services.py::test_one_that_dies_is_replaced",
    "tests/schedules/test_page.py::test_the_example_ticks_greets_and_reports",
    "tests/schedules/test_page.py::test_the_first_example_makes_tea",
    "tests/store/test_durable_plans.py::test_they_do_so_among_very_many",
    "tests/store/test_durable_plans.py::test_they_read_what_they_work_on[analysed empty",
    "tests/store/test_lock_plans.py::test_they_read_what_they_are_about[0-full]",
    "tests/store/test_lock_plans.py::test_they_read_what_they_are_about[1000-empty]",
    "tests/store/test_lock_plans.py::test_they_read_what_they_are_about[1000-never]",
    "tests/store/test_plans.py::test_they_do_so_among_very_many",
    "tests/store/test_quarantine.py::test_a_storm_of_deaths",
    "tests/store/test_reap_plans.py::test_they_do_so_among_very_many",
    "tests/store/test_reap_plans.py::test_they_read_what_they_work_on[analysed empty-1000]",
    "tests/store/test_reap_plans.py::test_they_read_what_they_work_on[analysed full-0]",
    "tests/store/test_reap_plans.py::test_they_read_what_they_work_on[never analysed-1000]",
    "tests/store/test_role_settings.py::test_a_program_comes_to_the_same",
    "tests/store/test_schedule_plans.py::test_it_does_so_among_very_many",
    "tests/store/test_testing.py::test_the_plugin_works_in_a_project_of_somebody_elses[auto",
    "tests/tracing/test_worker_lines.py::test_all_processes_of_a_worker_write_alike",
    "tests/tracing/test_worker_lines.py::test_text_says_it_in_a_line",
    "tests/web/test_serve.py::test_a_request_that_cannot_be_stopped_does_not_keep_it_from_leaving[/plain]",
)

PARTS = {"crowd": CROWD, "alone": ALONE, "proofs": PROOFS}


def paths(part: str) -> list[str]:
    return sorted({name.partition("::")[0] for name in PARTS[part]})


if __name__ == "__main__":
    print(*paths(sys.argv[1]))
