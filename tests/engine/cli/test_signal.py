"""`rota signal`: send a signal to a run from a shell."""

from __future__ import annotations

import pytest

from rota.cli.exit_codes import NOT_FOUND, USAGE_ERROR
from support.cli_fixtures import Rota
from support.terminal import Program, Terminal, eventually

BOARD = ("-a", "board:app")


def start(rota: Rota, *words: str) -> str:
    return rota("start", *BOARD, *words).out.splitlines()[0]


def shown(rota: Rota, run: str) -> dict[str, object]:
    document: dict[str, object] = rota("show", run, "--json").json()
    return document


def start_waiting(rota: Rota, *words: str) -> str:
    """Start a run that waits for a signal."""
    run = start(rota, *words)
    eventually(lambda: shown(rota, run)["awaits"])
    return run


def test_signal_command_wakes_run_with_payload(durable: Rota) -> None:
    run = start_waiting(durable, "answer")

    done = durable("signal", run, "answer", '{"by": "Ada", "n": 12345678901234567890}')

    assert (done.code, done.out, done.err) == (0, f"signal 'answer' was sent to run {run}\n", "")
    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == {"by": "Ada", "n": 12345678901234567890}


def test_signal_command_without_json_sends_null(durable: Rota) -> None:
    run = start_waiting(durable, "answer")

    durable("signal", run, "answer")

    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] is None


def test_signal_command_before_run_begins_is_kept(durable: Rota) -> None:
    run = start(durable, "answer", "--delay", "0.2s")

    assert durable("signal", run, "answer", "1").code == 0

    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == 1


def test_signal_command_reads_payload_from_stdin(
    durable: Rota, board: Program, board_dsn: str
) -> None:
    run = start_waiting(durable, "answer")

    done = Terminal(board_dsn).run("signal", run, "answer", "-", stdin='["a", "b"]')

    assert done.code == 0
    eventually(lambda: shown(durable, run)["state"] == "succeeded")
    assert shown(durable, run)["result"] == ["a", "b"]


def test_signal_command_second_signal_of_name_is_refused(durable: Rota) -> None:
    run = start(durable, "answer", "--delay", "1h")
    durable("signal", run, "answer", "1")

    done = durable("signal", run, "answer", "2")

    assert done.code == NOT_FOUND
    assert done.out == ""
    assert f"run {run} already has signal 'answer', and the first one is kept" in done.complaint
    [said] = durable("show", run, "--json").json()["signals"]
    assert (said["name"], said["payload"]) == ("answer", 1)


def test_signal_command_ended_run_is_refused(durable: Rota) -> None:
    run = start(durable, "count", "steps=0", "--wait")

    done = durable("signal", run, "answer")

    assert done.code == NOT_FOUND
    assert done.complaint == f"run {run} has ended; signal 'answer' was not sent"


def test_signal_command_missing_run_is_not_found(durable: Rota) -> None:
    done = durable("signal", "999999999", "answer")

    assert done.code == NOT_FOUND
    assert "there is no run 999999999" in done.complaint


def test_signal_command_unawaited_name_is_kept_with_hint(durable: Rota) -> None:
    run = start_waiting(durable, "answer", "name=approved")

    done = durable("signal", run, "aproved", "true")

    assert done.code == 0
    assert done.err == "no job waits for it yet; the run waits for signal 'approved'\n"


def test_signal_command_job_of_flow_signals_its_run(durable: Rota) -> None:
    run = start(durable, "order", "item=book")
    eventually(
        lambda: any(each["awaits"] for each in durable("show", run, "--json").json()["jobs"])
    )
    [job] = [each for each in durable("show", run, "--json").json()["jobs"] if each["awaits"]]

    done = durable("signal", str(job["job"]), "approval", "true")

    assert done.out == f"signal 'approval' was sent to run {run}\n"
    eventually(lambda: durable("show", str(job["job"]), "--json").json()["state"] == "succeeded")


def test_signal_command_wait_of_cancelled_job_gives_no_hint(durable: Rota) -> None:
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
def test_signal_command_mistake_prints_one_line_and_sends_nothing(
    durable: Rota, mistake: str
) -> None:
    words, expected = MISTAKES[mistake]
    run = start(durable, "answer", "--delay", "1h")

    done = durable("signal", run, *words)

    assert done.code == USAGE_ERROR
    assert expected in done.complaint
    assert durable("show", run, "--json").json()["signals"] == []
