"""`rota fork --from-step`: run a task again from one of its steps."""

from __future__ import annotations

from typing import Any

import pytest

from rota.cli.exit_codes import NOT_FOUND, USAGE_ERROR
from support.cli_fixtures import Rota
from support.terminal import eventually

BOARD = ("-a", "board:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *BOARD, *words).out.splitlines()[0]


def shown(rota: Rota, run: str) -> Any:
    return rota("show", run, "--json").json()


def finish_onboarding(rota: Rota, confirmed: str) -> str:
    run = start(rota, "onboard", "mail=ada", "pause=0.1")
    eventually(lambda: shown(rota, run)["awaits"])
    rota("signal", run, "confirmed", confirmed)
    eventually(lambda: shown(rota, run)["state"] == "succeeded")
    return run


def step_times(rota: Rota, run: str) -> dict[tuple[str, str, int], str]:
    """Return when each step of a run was recorded."""
    return {
        (each["kind"], each["name"], each["number"]): each["at"]
        for each in shown(rota, run)["steps"]
    }


def test_fork_from_step_keeps_earlier_steps_and_reruns_the_rest(durable: Rota) -> None:
    run = finish_onboarding(durable, "1")

    done = durable("fork", run, "--from-step", "invoice")

    forked = done.out.strip()
    assert (done.code, done.err) == (0, "")
    eventually(lambda: shown(durable, forked)["awaits"])
    before, after = step_times(durable, run), step_times(durable, forked)
    assert after["step", "charge", 2] == before["step", "charge", 2]
    assert after["step", "invoice", 1] != before["step", "invoice", 1]
    assert f"forked from  run {run}\n" in durable("show", forked).out
    assert shown(durable, forked)["origin"] == run
    durable("signal", forked, "confirmed", "2")
    eventually(lambda: shown(durable, forked)["result"] == "ada: 2")
    assert shown(durable, run)["result"] == "ada: 1"


def test_fork_from_step_new_input_needs_the_app(durable: Rota) -> None:
    run = finish_onboarding(durable, "1")
    words = ("fork", run, "--from-step", "sleep", "--input", '{"mail": "bob", "pause": 0.1}')

    unchecked, forked = durable(*words), durable(*words, *BOARD).out.strip()

    assert unchecked.code == USAGE_ERROR
    assert "is not one of this app, so its input cannot be checked" in unchecked.complaint
    eventually(lambda: shown(durable, forked)["awaits"])
    durable("signal", forked, "confirmed", "2")
    eventually(lambda: shown(durable, forked)["result"] == "bob: 2")


MISTAKES = {
    "nowhere to begin": (
        (),
        "no starting point is given: use --from TASK for a flow, or --from-step NAME",
    ),
    "two places to begin": (("--from", "a", "--from-step", "b"), "no starting point is given"),
    "a step it has not come to": (("--from-step", "later"), "has no recorded step 'later'"),
    "a task of no flow": (("--from", "a"), "is not one of a flow"),
    "input for a flow": (("--from", "a", "--input", "{}"), "--input needs --from-step"),
    "input that is no JSON": (("--from-step", "a", "--input", "{"), "--input is not JSON"),
    "input that is a list": (
        ("--from-step", "a", "--input", "[]"),
        "--input must be a JSON object",
    ),
    "input nobody takes": (
        ("--from-step", "one", "--input", '{"stepz": 1}'),
        "takes no argument 'stepz'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_fork_from_step_mistake_prints_one_line_and_forks_nothing(
    durable: Rota, mistake: str
) -> None:
    words, expected = MISTAKES[mistake]
    run = start(durable, "count", "steps=1", "--wait")

    done = durable("fork", *BOARD, run, *words)

    assert (done.code, done.out) == (USAGE_ERROR, "")
    assert expected in done.complaint
    assert str(durable("runs", "--limit", "1", "--json").json()["runs"][0]["run"]) == run


def test_fork_from_step_missing_run_is_not_found(durable: Rota) -> None:
    done = durable("fork", "999999999", "--from-step", "a")

    assert done.code == NOT_FOUND
    assert "there is no run 999999999" in done.complaint


def test_fork_from_step_of_flow_run_is_refused(durable: Rota) -> None:
    run = start(durable, "order", "item=book")

    done = durable("fork", run, "--from-step", "a")

    assert done.code == USAGE_ERROR
    assert f"run {run} is one of a flow" in done.complaint
