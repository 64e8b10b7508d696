"""What users may import is deliberate: widening it shows up here, in review."""

from __future__ import annotations

import rota
import rota.testing

NAMES = [
    "ArgumentError",
    "Call",
    "Context",
    "KeyBusy",
    "Retry",
    "RetryLater",
    "Rota",
    "RotaError",
    "Run",
    "RunCancelled",
    "RunExpired",
    "RunFailed",
    "Settings",
    "Task",
]

FOR_TESTS = [
    "Clock",
    "Harness",
    "NotIdle",
    "NotSeen",
    "NotThrowaway",
    "Witness",
    "run_until_idle",
    "until_idle",
]


def test_the_package_offers_these_names() -> None:
    assert rota.__all__ == NAMES


def test_the_testing_package_offers_these_names() -> None:
    assert rota.testing.__all__ == FOR_TESTS


def test_every_name_is_there() -> None:
    for package in (rota, rota.testing):
        for name in package.__all__:
            assert hasattr(package, name), f"{package.__name__}.{name}"
