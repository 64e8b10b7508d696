"""The public names: a new one must be added here, so that a review sees it."""

from __future__ import annotations

import rota
import rota.asgi
import rota.contrib.fastapi
import rota.logs
import rota.testing
from support.places import DOCS

NAMES = [
    "ArgumentError",
    "BoundFlow",
    "BoundTask",
    "Busy",
    "ClaimLost",
    "Context",
    "Failure",
    "Flow",
    "FlowTask",
    "Inserted",
    "KeyBusy",
    "LeadershipLost",
    "LockLost",
    "LostJob",
    "RateLimitExceeded",
    "ReplayMismatch",
    "Requeue",
    "Retry",
    "RetryLater",
    "Rota",
    "RotaError",
    "Run",
    "RunCancelled",
    "RunExpired",
    "RunFailed",
    "Schedule",
    "ServiceContext",
    "Settings",
    "SignalTimeout",
    "StepFailed",
    "Task",
    "TaskTimeout",
    "Tick",
    "WorkerLost",
]

FOR_TESTS = [
    "EventNotSeen",
    "EventRecorder",
    "Harness",
    "NotIdle",
    "NotThrowaway",
    "Proxy",
    "SettableClock",
    "SimulatedResult",
    "crash_everywhere",
    "run_until_idle",
    "simulate",
    "until_idle",
]


def test_package_exports_listed_names() -> None:
    assert rota.__all__ == NAMES


def test_logs_module_exports_listed_names_and_guide_documents_them() -> None:
    assert rota.logs.__all__ == [
        "JobFilter",
        "JsonFormatter",
        "TextFormatter",
        "current_fields",
        "to_stderr",
    ]
    page = (DOCS / "guides" / "logs.md").read_text("utf-8")
    assert [name for name in rota.logs.__all__ if f"rota.logs.{name}(" not in page] == []


def test_testing_package_exports_listed_names() -> None:
    assert rota.testing.__all__ == FOR_TESTS


def test_web_packages_export_listed_names() -> None:
    assert rota.asgi.__all__ == ["Drain"]
    assert rota.contrib.fastapi.__all__ == ["Runs", "SyncRuns", "runs_in"]


def test_exported_names_exist() -> None:
    for package in (rota, rota.testing):
        for name in package.__all__:
            assert hasattr(package, name), f"{package.__name__}.{name}"


def test_testing_guide_names_every_public_name_and_links_the_events() -> None:
    """The linked page has an entry for every event (tests/unit/docs/test_reference.py)."""
    page = (DOCS / "guides" / "testing.md").read_text("utf-8")
    told_by_the_harness = {"SettableClock"}  # created by the harness only

    for name in rota.testing.__all__:
        assert name in told_by_the_harness or f"`{name}" in page or f"{name}(" in page, name
    assert "(../reference/events.md)" in page
