"""`rota start`."""

from __future__ import annotations

import io
import json

import pytest

from rota.cli.exit_codes import FAILED
from rota.cli.start import DurationParameter, read_arguments
from support.cli_fixtures import Rota
from support.terminal import Program

SHOP = ("-a", "shop:app")


def test_start_command_prints_only_the_run_id(rota: Rota) -> None:
    done = rota("start", *SHOP, "resize", "path=a.png", "--queue", "nobody")

    assert (done.code, done.err) == (0, "")
    shown = rota("show", done.out.strip(), "--json").json()
    assert (shown["name"], shown["queue"], shown["input"]) == (
        "resize",
        "nobody",
        {"path": "a.png"},
    )


def test_start_command_task_keeps_its_queue(rota: Rota, worker: Program) -> None:
    run = rota("start", *SHOP, "resize", "path=a.png").out.strip()

    assert rota("show", run, "--json").json()["queue"] == "images"


def test_read_arguments_values_are_json_or_else_text() -> None:
    assert read_arguments(
        None,
        ("a=1", "b=one", "c=[1]", 'd="1"', "e=", "f=x=y", "g=NaN", "h=null", "i=1.50", "j=007"),
    ) == {
        "a": 1,
        "b": "one",
        "c": [1],
        "d": "1",
        "e": "",
        "f": "x=y",
        "g": "NaN",
        "h": None,
        "i": 1.5,
        "j": "007",
    }


def test_read_arguments_pair_overrides_the_document() -> None:
    assert read_arguments('{"a": 1, "b": 2}', ("b=3",)) == {"a": 1, "b": 3}


def test_read_arguments_dash_reads_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": 1}'))

    assert read_arguments("-", ()) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5s", 1.5), ("250ms", 0.25), ("10m", 600), ("2h30m", 9000), ("7d", 604800)],
)
def test_duration_parameter_accepts_seconds_or_units(text: str, seconds: float) -> None:
    assert DurationParameter().convert(text, None, None).total_seconds() == seconds


def test_start_command_large_integers_stay_exact(rota: Rota, worker: Program) -> None:
    large = 2**80 + 1

    done = rota("start", *SHOP, "echo", f"value={large}", "--wait", "--json")

    assert done.json()["result"] == large
    assert str(large) in rota("show", str(done.json()["run"])).out


def test_start_wait_prints_id_and_result(rota: Rota, worker: Program) -> None:
    done = rota("start", *SHOP, "resize", "path=ä.png", "width=7", "--wait", "--timeout", "30")

    id, result = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert id.isdigit()
    assert json.loads(result) == "ä.png at 7"


def test_start_wait_null_result_prints_null(rota: Rota, worker: Program) -> None:
    assert rota("start", *SHOP, "echo", "value=null", "--wait").out.endswith("\nnull\n")


def test_start_wait_failed_run_exits_with_1_and_error(rota: Rota, worker: Program) -> None:
    done = rota("start", *SHOP, "resize", "path=broken", "--wait")

    assert done.code == FAILED
    assert (
        "failed at attempt 2: ValueError: cannot read [bold]broken[/bold] \\x1b" in done.complaint
    )
    assert f"rota show {done.out.strip()}" in done.complaint


def test_start_wait_timeout_exits_with_1_and_run_continues(rota: Rota) -> None:
    words = ("start", *SHOP, "echo", "value=1", "--queue", "nobody")

    done = rota(*words, "--wait", "--timeout", "50ms")

    assert done.code == FAILED
    assert "has no outcome after 50 ms" in done.complaint
    assert rota("show", done.out.strip(), "--json").json()["state"] == "queued"


def test_start_wait_json_failure_prints_one_document(rota: Rota, worker: Program) -> None:
    done = rota("start", *SHOP, "resize", "path=broken", "--wait", "--json")

    assert (done.code, done.err) == (FAILED, "")
    assert json.loads(done.out)["error"]["type"] == "ValueError"


def test_start_command_used_key_prints_the_existing_run(rota: Rota) -> None:
    words = ("start", *SHOP, "echo", "value=1", "--key", "once", "--queue", "nobody")

    first, second = rota(*words), rota(*words)

    assert first.out == second.out
    assert first.err == ""
    assert "key 'once' is in use" in second.err


def test_start_command_delay_and_priority_are_applied(rota: Rota) -> None:
    run = rota("start", *SHOP, "echo", "value=1", "--delay", "2h", "--priority", "7").out.strip()

    shown = rota("show", run, "--json").json()

    assert (shown["state"], shown["priority"]) == ("sleeping", 7)
    assert "it was started for later; until" in rota("show", run).out


def test_start_command_without_app_is_not_validated(rota: Rota) -> None:
    done = rota("start", "whatever", "a=1", "--queue", "nobody", "--key", "k", "--delay", "1h")

    assert done.code == 0
    assert done.err.startswith("not validated: without -a MODULE:APP it is unknown")
    shown = rota("show", done.out.strip(), "--json").json()
    assert (shown["name"], shown["input"], shown["key"]) == ("whatever", {"a": 1}, "k")


def test_start_command_reads_app_from_environment(
    rota: Rota, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_APP", "shop:app")

    assert "has no task 'nothing'" in rota("start", "nothing").complaint
