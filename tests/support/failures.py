"""One test for many items, which names every item that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


def assert_none(faults: Iterable[str], remedy: str = "") -> None:
    """Raise AssertionError with one line for each fault; pytest would shorten a long list."""
    found = list(faults)
    assert not found, "\n".join([f"{len(found)} faults. {remedy}".rstrip(), *found])


def failures(
    check: Callable[[Item], None], items: Iterable[Item], name: Callable[[Item], str] = str
) -> list[str]:
    """Call `check` with each item; return a line for each that raises AssertionError."""
    found = []
    for item in items:
        try:
            check(item)
        except AssertionError as error:
            found.append(f"{name(item)}: {error}")
    return found
