"""Each check of durable functions finds its violation, and none in a correct history."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from .durability import CHECKS
from .evidence import Evidence, Kept, StepEffect, Violation
from .history import Line


def said(who: str, what: str, **rest: Any) -> Line:
    return Line(who, 1.0, 1.0, what, {"job": 4, **rest})


def good() -> Evidence:
    """Return a correct history: job 4 writes, sleeps, runs a step and receives a signal sent twice."""
    return Evidence(
        kept=[
            Kept(7, 13.0, 4, "step", "write 1", result="v"),
            Kept(8, 13.0, 4, "sleep", "sleep", until=14.0),
            Kept(9, 14.1, 4, "step", "do 1", result="w"),
        ],
        step_effects=[StepEffect(7, 4, "write 1", "v")],
        results={4: ["its own", "v", "w", "yes", ""]},
        signals={(4, "go"): "yes"},
        lines=[
            said("a", "given", step="write 1", value="v"),
            said("a", "given", step="do 1", value="w"),
            said("p", "signal", name="go", payload="yes", answer="sent"),
            said("p", "signal", name="go", payload="no", answer="known"),
            said("a", "given", step="go 1", value="yes"),
            said("a", "given", step="perhaps 1", value=""),
            said("b", "given", step="go 1", value="yes"),
        ],
    )


def check(evidence: Evidence) -> list[Violation]:
    return [violation for each in CHECKS for violation in each(evidence)]


def noted(what: str, **rest: Any) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, lines=[*e.lines, said("b", what, **rest)])


def wrote(*effects: StepEffect) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, step_effects=effects)


ONCE = StepEffect(7, 4, "write 1", "v")

BAD: list[tuple[str, str, Callable[[Evidence], Evidence]]] = [
    ("I19", "wrote twice", wrote(ONCE, ONCE)),
    ("I19", "wrote v, kept was v", wrote(StepEffect(6, 4, "write 1", "v"))),
    ("I19", "wrote x, kept was v", wrote(StepEffect(7, 4, "write 1", "x"))),
    ("I19", "wrote, and was not kept", wrote(ONCE, StepEffect(9, 4, "left 1", "x"))),
    ("I19", "was kept, and wrote nothing", wrote()),
    (
        "I20",
        "'do 1' of job 4 was kept again",
        lambda e: replace(e, kept=[*e.kept, structs.replace(e.kept[2], again=True)]),
    ),
    ("I21", "given x at 'do 1', kept was w", noted("given", step="do 1", value="x")),
    ("I21", "two values at 'go 1'", noted("given", step="go 1", value="no")),
    ("I21", "x, which it was never given", lambda e: replace(e, results={4: ["its own", "x"]})),
    ("I22", "is lost: maybe", noted("signal", name="perhaps", payload="maybe", answer="sent")),
    ("I22", "heard x as 'perhaps'", noted("given", step="perhaps 0", value="x")),
    (
        "I23",
        "came 0.90 s early",
        lambda e: replace(e, kept=[*e.kept[:2], structs.replace(e.kept[2], at=13.1)]),
    ),
]


def test_a_journey_in_which_all_is_well_passes() -> None:
    assert check(good()) == []


def test_what_was_heard_may_be_said_again_after_a_new_beginning() -> None:
    evidence = noted("signal", name="go", payload="again", answer="sent")(good())
    assert check(noted("given", step="go 0", value="again")(evidence)) == []


def test_a_signal_that_nobody_waited_for_stands() -> None:
    evidence = noted("signal", name="perhaps", payload="late", answer="sent")(good())
    assert check(replace(evidence, signals={**evidence.signals, (4, "perhaps"): "late"})) == []


@pytest.mark.parametrize(("invariant", "text", "spoil"), BAD)
def test_what_is_wrong_is_found(
    invariant: str, text: str, spoil: Callable[[Evidence], Evidence]
) -> None:
    found = check(spoil(good()))
    assert [each for each in found if each.invariant == invariant and re.search(text, each.text)]


def test_every_check_has_something_it_finds() -> None:
    finding = {each.__name__ for each in CHECKS for _, _, spoil in BAD if list(each(spoil(good())))}
    assert finding == {each.__name__ for each in CHECKS}
