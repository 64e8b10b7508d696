"""Flows on the command line: `rota flows` and `graph`; `start`, `runs`, `cancel`, `retry` and `fork` of
flows.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from rota.cli.exit_codes import FAILED, NOT_FOUND, USAGE_ERROR
from support.cli_fixtures import Rota
from support.terminal import Program, eventually

MILL = ("-a", "mill:app")


@pytest.fixture
def rota(rota: Rota, mill_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Rota:
    """`rota` on the database of the flows."""
    monkeypatch.setenv("ROTA_DATABASE_URL", mill_dsn)
    return rota


def start(rota: Rota, *words: str) -> str:
    return rota("start", *MILL, *words).out.splitlines()[0]


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch, rota: Rota) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", "postgresql://127.0.0.1:1/x")


# Definitions


@pytest.mark.usefixtures("no_database")
def test_flows_command_lists_tasks_queues_and_inputs(rota: Rota) -> None:
    done = rota("flows", *MILL)

    lines = {line.split()[0]: line.split(maxsplit=3) for line in done.out.splitlines()}
    assert (done.code, done.err) == (0, "")
    assert list(lines) == ["flow", "etl", "fan", "gallery", "gate", "lonely"]
    assert lines["etl"][1:3] == ["6", "5"]
    assert lines["etl"][3] == "default, search  day: str, broken: bool = False"
    assert lines["gallery"][3] == "default          numbers: list[int]"


@pytest.mark.usefixtures("no_database")
def test_flows_json_lists_tasks_with_their_dependencies(rota: Rota) -> None:
    found = {each["name"]: each for each in rota("flows", *MILL, "--json").json()}

    etl = found["etl"]
    tasks = {each["name"]: each for each in etl["tasks"]}
    assert (etl["longest_path"], etl["queues"], etl["error"]) == (5, ["default", "search"], None)
    assert etl["input"] == {
        "day": {"type": "str", "required": True},
        "broken": {"type": "bool", "required": False},
    }
    assert tasks["index"]["queue"] == "search"
    assert (tasks["report"]["inputs"], tasks["report"]["after"]) == (["clean"], ["index"])
    assert (tasks["alert"]["on_failure"], tasks["alert"]["when"]) == (True, "any_failed")
    assert tasks["complain"]["skip_if"]


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_flows_command_invalid_flow_is_listed_and_exits_with_2(
    rota: Rota, words: tuple[str, ...]
) -> None:
    done = rota("flows", "-a", "mill:wrong", *words)

    assert done.code == USAGE_ERROR
    assert done.complaint == "3 flows of mill:wrong cannot work: circle, nothing, unread"
    assert "one waits for two waits for one" in done.out
    assert "flow 'nothing' has no tasks" in done.out
    assert "cannot come out of JSON" in done.out
    assert "fine" in done.out


def test_flows_command_app_without_flows_prints_hint(rota: Rota) -> None:
    assert rota("flows", "-a", "shop:app").out.startswith("shop:app has no flows; write one")
    assert rota("flows", "-a", "shop:app", "--json").json() == []


# Graphs


@pytest.mark.usefixtures("no_database")
def test_graph_text_annotates_queues_and_order_only_edges(rota: Rota) -> None:
    assert rota("graph", *MILL, "etl").out.splitlines() == [
        "● extract",
        "├─● clean",
        "╰─│─● index  queue search",
        "  ├─● report  after index",
        "●─┴─╯ complain  skip_if, after report",
        "● alert  on failure",
    ]


def test_graph_mermaid_order_only_edges_are_dashed(rota: Rota) -> None:
    drawn = rota("graph", *MILL, "etl", "--mermaid", "--down").out

    assert drawn.startswith("flowchart TD\n")
    assert drawn.count('["') == 6
    assert "n0 --> n1" in drawn
    assert "n2 -.-> n3" in drawn
    assert drawn == rota("graph", *MILL, "etl", "--format", "mermaid", "--down").out


def test_graph_svg_describes_order_and_result_edges(rota: Rota) -> None:
    drawn = rota("graph", *MILL, "etl", "--svg").out

    assert ET.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    assert "report comes after index" in drawn
    assert "report receives the result of clean" in drawn
    assert "on failure" in drawn


def test_graph_similar_tasks_are_folded_without_all_option(rota: Rota) -> None:
    for form in ("text", "svg", "mermaid"):
        folded = rota("graph", *MILL, "fan", "--format", form).out
        whole = rota("graph", *MILL, "fan", "--format", form, "--all").out

        assert "32 more" in folded
        assert "part39" not in folded
        assert "part39" in whole


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.svg", "<svg "), ("a.mmd", "flowchart LR\n"), ("a.md", "```mermaid\n"), ("a.txt", "● e")],
)
def test_graph_output_file_suffix_selects_the_format(
    rota: Rota, tmp_path: Path, name: str, begins: str
) -> None:
    done = rota("graph", *MILL, "etl", "-o", str(tmp_path / name))

    assert (done.code, done.out, done.err) == (0, "", "")
    assert (tmp_path / name).read_text("utf-8").startswith(begins)


def test_graph_format_option_overrides_the_file_suffix(rota: Rota, tmp_path: Path) -> None:
    rota("graph", *MILL, "etl", "--svg", "-o", str(tmp_path / "picture"))

    assert (tmp_path / "picture").read_text("utf-8").startswith("<svg ")


# Starting


def test_start_flow_with_wait_prints_results_of_last_tasks(rota: Rota, mill: Program) -> None:
    done = rota("start", *MILL, "etl", "day=monday", "--wait")

    id, result = done.out.split("\n", 1)
    assert (done.code, done.err) == (0, "")
    assert id.isdigit()
    assert json.loads(result) == {"complain": None}


def test_start_flow_with_wait_failure_names_job_and_error(rota: Rota, mill: Program) -> None:
    words = ("start", *MILL, "etl", "day=monday", "broken=true", "--wait")

    done, document = rota(*words), rota(*words, "--json")

    assert (done.code, document.code) == (FAILED, FAILED)
    assert "(etl.clean) failed at attempt 2: ValueError: cannot read" in done.complaint
    error = json.loads(document.out)["error"]
    assert (error["task"], error["type"], error["state"]) == ("etl.clean", "ValueError", "failed")


def test_start_flow_applies_key_delay_and_priority(rota: Rota) -> None:
    words = ("gate", "file=x", "--key", "once", "--delay", "1h", "--priority", "7")

    run, again = start(rota, *words), start(rota, *words)

    shown = rota("show", run, "--json").json()
    assert run == again
    assert shown["key"] == "once"
    assert {each["task"]: each["state"] for each in shown["jobs"]} == {
        "gate.hold": "sleeping",
        "gate.through": "waiting",
    }
    assert rota("show", str(shown["jobs"][0]["job"]), "--json").json()["priority"] == 7


MISTAKES = {
    "a flow without its code": (("start", "etl", "day=1"), "name its app with -a MODULE:APP"),
    "a queue for a flow": (("start", *MILL, "etl", "day=1", "--queue", "x"), "leave out --queue"),
    "an input of the wrong type": (("start", *MILL, "etl", "day=x", "broken=9"), "in broken"),
    "an input that is missing": (("start", *MILL, "etl"), "takes 'day'"),
    "an input nobody takes": (("start", *MILL, "etl", "day=x", "x=1"), "takes 'x'"),
    "an unknown flow": (("start", *MILL, "etll"), "did you mean 'etl'?"),
    "an unknown flow, far off": (
        ("start", *MILL, "x"),
        "it has: etl, fan, gallery, gate, half, lonely",
    ),
    "a flow that cannot work": (("start", "-a", "mill:wrong", "circle"), "one waits for two"),
    "a graph of no flow": (("graph", *MILL, "galery"), "did you mean 'gallery'?"),
    "a graph of a flow that cannot work": (("graph", "-a", "mill:wrong", "nothing"), "no tasks"),
    "a graph of no app": (("graph", "etl"), "no app is given: use -a MODULE:APP"),
    "a file that says nothing": (("graph", *MILL, "etl", "-o", "x.png"), ".svg, .mmd"),
    "a file that cannot be": (("graph", *MILL, "etl", "-o", "no/where.svg"), "cannot write"),
    "no task to fork from": (("fork", "1"), "--from"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_flow_commands_mistake_prints_one_line_and_exits_with_2(
    rota: Rota, failed_flow: str, mistake: str
) -> None:
    words, expected = MISTAKES[mistake]

    done = rota(*words)

    assert (done.code, done.out) == (USAGE_ERROR, "")
    assert expected in done.complaint


# Listing


def test_runs_command_lists_flows_beside_tasks(empty_rota: Rota) -> None:
    flow = start(empty_rota, "lonely", "--key", "k")
    task = start(empty_rota, "half", "number=1")

    heading, first, second = empty_rota("runs").out.splitlines()
    assert heading.split() == ["run", "name", "kind", "queue", "state", "attempt", "age", "key"]
    assert first.split()[:5] == [task, "half", "task", "default", "queued"]
    assert second.split()[:5] == [flow, "lonely", "flow", "-", "running"]
    for option in ("--flow", "--task"):
        [line] = empty_rota("runs", option, "lonely", "--json").json()["runs"]
        assert (line["name"], line["is_flow"], line["queue"]) == ("lonely", True, None)
    assert empty_rota("runs", "--queue", "nobody").out == "no run matches\n"


# Actions


def test_cancel_flow_run_cancels_all_jobs(rota: Rota, mill: Program) -> None:
    run = start(rota, "lonely")

    assert rota("cancel", run).out == f"run {run} is cancelled\n"
    shown = rota("show", run, "--json").json()
    assert [each["state"] for each in shown["jobs"]] == ["cancelled", "cancelled"]
    assert shown["state"] == "cancelled"


def test_cancel_job_of_flow_skips_its_successor(rota: Rota, mill: Program) -> None:
    run = start(rota, "lonely")
    job, other = (str(each["job"]) for each in rota("show", run, "--json").json()["jobs"])

    assert rota("cancel", job).out == f"job {job} of run {run} is cancelled\n"
    again = rota("cancel", other)
    assert again.code == NOT_FOUND
    assert again.complaint == f"job {other} of run {run} was skipped already"


def test_retry_flow_run_is_queued_but_its_job_is_refused(rota: Rota, mill: Program) -> None:
    run = start(rota, "lonely")
    job = str(rota("show", run, "--json").json()["jobs"][0]["job"])
    rota("cancel", job)

    refused = rota("retry", job)

    assert refused.code == USAGE_ERROR
    assert refused.complaint == f"job {job} is a part of run {run}; retry the run"
    assert rota("retry", run).out == f"run {run} is queued for a retry\n"
    assert rota("show", run, "--json").json()["state"] == "running"


def test_fork_from_task_keeps_results_of_earlier_tasks(rota: Rota, mill: Program) -> None:
    run = rota("start", *MILL, "etl", "day=monday", "--wait").out.splitlines()[0]

    done = rota("fork", run, "--from", "report")

    forked = done.out.strip()
    assert (done.code, done.err) == (0, "")
    eventually(lambda: rota("show", forked, "--json").json()["state"] == "succeeded")
    shown = rota("show", forked, "--json").json()
    assert shown["origin"] == run
    assert f"forked from  run {run}" in rota("show", forked).out
    old = {each["task"]: each for each in rota("show", run, "--json").json()["jobs"]}
    new = {each["task"]: each for each in shown["jobs"]}
    assert new["etl.extract"]["finished"] == old["etl.extract"]["finished"]
    assert new["etl.report"]["finished"] > old["etl.report"]["finished"]


def test_fork_of_task_run_or_unknown_task_is_refused(rota: Rota, failed_flow: str) -> None:
    task = start(rota, "half", "number=1", "--queue", "nobody")

    assert "has no task 'nothing'" in rota("fork", failed_flow, "--from", "nothing").complaint
    assert "is not one of a flow" in rota("fork", task, "--from", "half").complaint
    assert rota("fork", "999999999", "--from", "half").code == NOT_FOUND
