"""Shared words: numbers with nouns, durations and suggestions."""

from __future__ import annotations

import pytest

from rota.model.text import closest_name, counted, in_one_unit, in_whole_units, suggest_name


def test_counted_uses_singular_for_one_only() -> None:
    found = [counted(count, "job") for count in (0, 1, 2, 1200)]
    assert found == ["0 jobs", "1 job", "2 jobs", "1,200 jobs"]
    assert counted(1, "job is", "jobs are") == "1 job is"
    assert counted(2, "job is", "jobs are") == "2 jobs are"


def test_counted_at_limit_says_or_more() -> None:
    assert counted(999, "job", limit=1000) == "999 jobs"
    assert counted(1000, "job", limit=1000) == "1,000 or more jobs"


@pytest.mark.parametrize(
    ("seconds", "one_unit", "whole_units", "largest"),
    [
        (0.4, "0.4 s", "0 s", "0 s"),
        (59, "59.0 s", "59 s", "59 s"),
        (60, "1.0 min", "1 min", "1 min"),
        (250, "4.2 min", "4 min 10 s", "4 min"),
        (5430, "1.5 h", "1 h 30 min", "1 h"),
        (97200, "1.1 d", "1 d 3 h", "1 d"),
    ],
)
def test_duration_is_shown_in_units(
    seconds: float, one_unit: str, whole_units: str, largest: str
) -> None:
    assert in_one_unit(seconds) == one_unit
    assert in_whole_units(seconds) == whole_units
    assert in_whole_units(seconds, detail_below=0) == largest


def test_suggestion_without_similar_name_lists_all() -> None:
    assert closest_name("quue", ["queue", "retry"]) == "queue"
    assert suggest_name("quue", ["queue", "retry"]) == "did you mean 'queue'?"
    assert suggest_name("x", ["queue", "retry"]) == "it has: queue, retry"
    assert suggest_name("x", []) == "it has: none"
