"""Each check of durable functions finds its violation, and none in a correct history."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from chaos.durability import CHECKS
from chaos.evidence import Evidence, JournalWrite, StepEffect, Violation
from chaos.history import Line


def history_line(who: str, what: str, **rest: Any) -> Line:
    return Line(who, 1.0, 1.0, what, {"job": 4, **rest})


def correct_history() -> Evidence:
    """Return a correct history: job 4 writes, sleeps, runs a step and receives a signal sent twice."""
    return Evidence(
        kept=[
            JournalWrite(7, 13.0, 4, "step", "write 1", result="v"),
            JournalWrite(8, 13.0, 4, "sleep", "sleep", until=14.0),
            JournalWrite(9, 14.1, 4, "step", "do 1", result="w"),
        ],
        step_effects=[StepEffect(7, 4, "write 1", "v")],
        results={4: ["its own", "v", "w", "yes", ""]},
        signals={(4, "go"): "yes"},
        lines=[
            history_line("a", "given", step="write 1", value="v"),
            history_line("a", "given", step="do 1", value="w"),
            history_line("p", "signal", name="go", payload="yes", answer="sent"),
            history_line("p", "signal", name="go", payload="no", answer="known"),
            history_line("a", "given", step="go 1", value="yes"),
            history_line("a", "given", step="perhaps 1", value=""),
            history_line("b", "given", step="go 1", value="yes"),
        ],
    )


def check(evidence: Evidence) -> list[Violation]:
    return [violation for each in CHECKS for violation in each(evidence)]


def with_line(what: str, **rest: Any) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, lines=[*e.lines, history_line("b", what, **rest)])


def with_step_effects(*effects: StepEffect) -> Callable[[Evidence], Evidence]:
    return lambda e: replace(e, step_effects=effects)


ONCE = StepEffect(7, 4, "write 1", "v")

BAD: list[tuple[str, str, Callable[[Evidence], Evidence]]] = [
    ("I19", "wrote twice", with_step_effects(ONCE, ONCE)),
    ("I19", "wrote v, kept was v", with_step_effects(StepEffect(6, 4, "write 1", "v"))),
    ("I19", "wrote x, kept was v", with_step_effects(StepEffect(7, 4, "write 1", "x"))),
    ("I19", "wrote, and was not kept", with_step_effects(ONCE, StepEffect(9, 4, "left 1", "x"))),
    ("I19", "was kept, and wrote nothing", with_step_effects()),
    (
        "I20",
        "'do 1' of job 4 was kept again",
        lambda e: replace(e, kept=[*e.kept, structs.replace(e.kept[2], again=True)]),
    ),
    ("I21", "given x at 'do 1', kept was w", with_line("given", step="do 1", value="x")),
    ("I21", "two values at 'go 1'", with_line("given", step="go 1", value="no")),
    ("I21", "x, which it was never given", lambda e: replace(e, results={4: ["its own", "x"]})),
    ("I22", "is lost: maybe", with_line("signal", name="perhaps", payload="maybe", answer="sent")),
    ("I22", "heard x as 'perhaps'", with_line("given", step="perhaps 0", value="x")),
    (
        "I23",
        "came 0.90 s early",
        lambda e: replace(e, kept=[*e.kept[:2], structs.replace(e.kept[2], at=13.1)]),
    ),
]


def test_durability_correct_history_has_no_violation() -> None:
    assert check(correct_history()) == []


def test_durability_signal_sent_again_after_restart_is_allowed() -> None:
    evidence = with_line("signal", name="go", payload="again", answer="sent")(correct_history())
    assert check(with_line("given", step="go 0", value="again")(evidence)) == []


def test_durability_signal_not_received_may_stay_stored() -> None:
    evidence = with_line("signal", name="perhaps", payload="late", answer="sent")(correct_history())
    assert check(replace(evidence, signals={**evidence.signals, (4, "perhaps"): "late"})) == []


@pytest.mark.parametrize(("invariant", "text", "spoil"), BAD)
def test_durability_faulty_history_violates_its_invariant(
    invariant: str, text: str, spoil: Callable[[Evidence], Evidence]
) -> None:
    found = check(spoil(correct_history()))
    assert [each for each in found if each.invariant == invariant and re.search(text, each.text)]


def test_durability_each_check_has_a_failing_example() -> None:
    finding = {
        each.__name__
        for each in CHECKS
        for _, _, spoil in BAD
        if list(each(spoil(correct_history())))
    }
    assert finding == {each.__name__ for each in CHECKS}
