"""`deploy/grafana/rota.json`: the dashboard, panel by panel."""

from __future__ import annotations

import re
from typing import Any

from rota.web.metric_definitions import METRIC_FAMILIES
from support.failures import assert_none, failures
from support.prometheus_files import BOARD, EXPRESSIONS, PANELS
from support.promql import family, faults, metrics

ROWS = [panel for panel in BOARD["panels"] if panel["type"] == "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Shown better elsewhere: the version as an annotation of a deploy, details of an instance on its own page.
NOT_ON_THE_BOARD = {
    "rota_draining",
    "rota_fleet_metrics_age_seconds",
    "rota_jobs_sleeping",
    "rota_jobs_claimed_total",
    "rota_jobs_held",
    "rota_jobs_started_total",
    "rota_leader_term",
    "rota_listening",
    "rota_queue_paused",  # shown by alerts and the dashboard
    "rota_worker_concurrency",
    "rota_worker_running",
}


def test_grafana_panels_have_description_unit_source_valid_queries() -> None:
    assert_none(failures(check_panel, PANELS, lambda panel: str(panel["title"])))


def check_panel(panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert faults(target["expr"]) == []
        # One dashboard for many deployments: each query selects the chosen one.
        assert target["expr"].count('job="$job"') == len(re.findall(r"rota_\w+\{", target["expr"]))
        assert not re.search(r"\brota_\w+(?![\w{])", target["expr"]), "asks about all of them"
    if len(panel["targets"]) > 1 or "by (" in panel["targets"][0]["expr"]:
        assert panel["type"] == "stat" or all(target["legendFormat"] for target in panel["targets"])


def test_grafana_panel_titles_and_ids_are_unique() -> None:
    titles = [panel["title"] for panel in PANELS]
    ids = [panel["id"] for panel in BOARD["panels"]]

    assert len(set(titles)) == len(titles)
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters)


def test_grafana_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    assert len(ROWS) >= 5


def test_grafana_dashboard_shows_every_metric_not_excluded() -> None:
    """A new metric is either on the dashboard or listed as left out."""
    text = " ".join(EXPRESSIONS)
    text += " ".join(each["expr"] for each in BOARD["annotations"]["list"])

    assert {family(name) for name in metrics(text)} | NOT_ON_THE_BOARD == set(METRIC_FAMILIES)
    assert not {family(name) for name in metrics(text)} & NOT_ON_THE_BOARD


def test_grafana_variables_query_existing_metrics() -> None:
    chosen = {each["name"]: each for each in BOARD["templating"]["list"]}

    assert chosen["datasource"]["query"] == "prometheus"
    for name in ("job", "queue"):
        asked = re.fullmatch(
            r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", chosen[name]["query"]["query"]
        )
        assert asked
        assert asked[2] in (*METRIC_FAMILIES[asked[1]].labels, "job")
        assert chosen[name]["datasource"] == SOURCE
    used = {name for text in EXPRESSIONS for name in re.findall(r"\$(\w+)", text)}
    assert used == {"job", "queue", "__rate_interval"}
    for each in BOARD["annotations"]["list"]:
        assert faults(each["expr"]) == []
