"""`rota signal`: send a signal to a run from a shell."""

from __future__ import annotations

import pytest

from rota.cli.exit_codes import NOT_FOUND, USAGE_ERROR

from .conftest import Rota
from .terminal import Program, Terminal, eventually

BOARD = ("-a", "board:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *BOARD, *words).out.splitlines()[0]


def shown(rota: Rota, run: str) -> dict[str, object]:
    document: dict[str, object] = rota("show", run, "--json").json()
    return document


def waiting(rota: Rota, *words: str) -> str:
    """Start a run that waits for a signal."""
    run = start(rota, *words)
    eventually(lambda: shown(rota, run)["awaits"])
    return run


def test_a_signal_wakes_a_run_which_is_given_what_it_says(durable: Rota) -> None:
    run = waiting(durable, "answer")

    done = durable("signal", run, "answer", '{"by": "Ada", "n": 12345678901234567890}')

    assert (done.code, done.out, done.err) == (0, f"signal 'answer' was sent to run {run}\n", "")
    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == {"by": "Ada", "n": 12345678901234567890}


def test_a_signal_without_json_says_null(durable: Rota) -> None:
    run = waiting(durable, "answer")

    durable("signal", run, "answer")

    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] is None


def test_a_signal_sent_before_the_run_begins_is_kept(durable: Rota) -> None:
    run = start(durable, "answer", "--delay", "0.2s")

    assert durable("signal", run, "answer", "1").code == 0

    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == 1


def test_what_is_said_can_come_from_stdin(durable: Rota, board: Program, board_dsn: str) -> None:
    run = waiting(durable, "answer")

    done = Terminal(board_dsn).run("signal", run, "answer", "-", stdin='["a", "b"]')

    assert done.code == 0
    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == ["a", "b"]


def test_the_first_signal_of_a_name_stands(durable: Rota) -> None:
    run = start(durable, "answer", "--delay", "1h")
    durable("signal", run, "answer", "1")

    done = durable("signal", run, "answer", "2")

    assert done.code == NOT_FOUND
    assert done.out == ""
    assert f"run {run} already has signal 'answer', and the first one is kept" in done.complaint
    [said] = durable("show", run, "--json").json()["signals"]
    assert (said["name"], said["payload"]) == ("answer", 1)


def test_a_run_that_is_over_hears_nothing(durable: Rota) -> None:
    run = start(durable, "count", "steps=0", "--wait")

    done = durable("signal", run, "answer")

    assert done.code == NOT_FOUND
    assert done.complaint == f"run {run} has ended; signal 'answer' was not sent"


def test_a_run_that_is_not_there_is_told_nothing(durable: Rota) -> None:
    done = durable("signal", "999999999", "answer")

    assert done.code == NOT_FOUND
    assert "there is no run 999999999" in done.complaint


def test_a_name_that_nobody_waits_for_is_kept_and_pointed_out(durable: Rota) -> None:
    run = waiting(durable, "answer", "name=approved")

    done = durable("signal", run, "aproved", "true")

    assert done.code == 0
    assert done.err == "no job waits for it yet; the run waits for signal 'approved'\n"


def test_the_id_of_a_flows_job_stands_for_its_run(durable: Rota) -> None:
    run = start(durable, "order", "item=book")
    eventually(
        lambda: any(each["awaits"] for each in durable("show", run, "--json").json()["jobs"])
    )
    [job] = [each for each in durable("show", run, "--json").json()["jobs"] if each["awaits"]]

    done = durable("signal", str(job["job"]), "approval", "true")

    assert done.out == f"signal 'approval' was sent to run {run}\n"
    eventually(lambda: durable("show", str(job["job"]), "--json").json()["state"] == "succeeded")


def test_what_a_job_that_has_ended_waited_for_nobody_waits_for(durable: Rota) -> None:
    run = start(durable, "order", "item=book")
    eventually(
        lambda: any(each["awaits"] for each in durable("show", run, "--json").json()["jobs"])
    )
    [job] = [each for each in durable("show", run, "--json").json()["jobs"] if each["awaits"]]
    durable("cancel", str(job["job"]))

    done = durable("signal", run, "aproval", "true")

    assert (done.code, done.err) == (0, "")


MISTAKES = {
    "text without quotes": (("answer", "yes"), "text goes into quotes: '\"yes\"'"),
    "half of an object": (("answer", '{"a":'), "is not JSON"),
    "what is no number in JSON": (("answer", "NaN"), "NaN is not a number JSON has"),
    "what PostgreSQL cannot hold": (("answer", '"\\u0000"'), "NUL character"),
    "more than may be stored": (("answer", f'"{"x" * 2_000_000}"'), "the payload of signal"),
    "a name of too many letters": (("n" * 201, "1"), "the name of a signal has 1 to 200 letters"),
    "no name at all": ((), "missing argument"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_sent(durable: Rota, mistake: str) -> None:
    words, expected = MISTAKES[mistake]
    run = start(durable, "answer", "--delay", "1h")

    done = durable("signal", run, *words)

    assert done.code == USAGE_ERROR
    assert expected in done.complaint
    assert durable("show", run, "--json").json()["signals"] == []
