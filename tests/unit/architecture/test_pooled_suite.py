"""Every test and file named in `support.pooled_suite` exists: a misspelt name would select no test."""

from __future__ import annotations

from support.places import TESTS
from support.pooled_suite import APART, EXEMPT, SUITE


def test_pooled_suite_names_only_existing_tests() -> None:
    missing = []
    for name in (*SUITE, *APART, *EXEMPT):
        path, _, test = name.partition("::")
        file = TESTS / path
        if not file.exists() or (test and f"def {test}(" not in file.read_text("utf-8")):
            missing.append(name)

    assert missing == []
