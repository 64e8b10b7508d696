"""Output of `rota worker` on stderr, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from support.terminal import Terminal
from support.worker_log import APPS, SECRET, TASKS, run_worker


def test_worker_log_json_lines_have_the_fields_of_their_job(rota_dsn: str) -> None:
    runs, done = run_worker(rota_dsn, ROTA_LOG_FORMAT="json")

    lines: list[dict[str, Any]] = [json.loads(line) for line in done.err.splitlines()]
    of = {each["message"]: each for each in lines if each["logger"] == "shop.orders"}
    assert sorted(of) == ["awaited", "caught", "isolated", "threaded"]
    worker = next(each for each in lines if "up to" in each["message"])
    for task in TASKS[:3]:
        line = of[task]
        assert (line["run"], line["job"], line["task"]) == (runs[task], runs[task], task)
        assert (line["attempt"], line["level"]) == (1, "info")
        assert isinstance(line["worker"], int)
        assert line["time"].endswith("Z")
    assert of["awaited"]["process"] == of["threaded"]["process"] == worker["process"]
    assert of["isolated"]["process"] != worker["process"]
    assert of["caught"]["exception"].endswith("ValueError: it was declined")
    assert len({of[task]["worker"] for task in TASKS[:3]}) == 1
    [failed] = [each for each in lines if "it will not be retried" in each["message"]]
    assert (failed["level"], failed["task"]) == ("error", "failing")
    assert "PermissionError: the card was refused" in failed["message"]
    assert failed["exception"].endswith("PermissionError: the card was refused")
    assert SECRET not in done.err
    assert SECRET not in done.out


def test_worker_log_unknown_format_is_refused(rota_dsn: str) -> None:
    done = Terminal(rota_dsn, APPS).run("worker", "orders:app", ROTA_LOG_FORMAT="xml")

    assert done.code == 2
    assert "'xml' is not one of 'text', 'json'" in done.complaint
