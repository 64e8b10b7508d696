"""`deploy/prometheus`: alerting rules."""

from __future__ import annotations

import re
from typing import Any

import click

from support.failures import assert_none, failures
from support.manifests import parse_command, read
from support.prometheus_files import RULES, TESTS
from support.promql import faults, labels_used

SEVERITIES = {"critical", "warning", "info"}


def test_alert_rules_have_valid_expression_severity_and_annotations() -> None:
    assert_none(failures(check_rule, RULES, lambda rule: str(rule["alert"])))


def check_rule(rule: dict[str, Any]) -> None:
    assert faults(rule["expr"]) == []
    assert rule["alert"].startswith("Rota")
    assert rule["labels"]["severity"] in SEVERITIES
    assert set(rule["annotations"]) == {"summary", "description"}
    # Labels used in the annotations must exist in the result of the expression.
    told = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    assert told <= labels_used(rule["expr"]) | {"instance"}
    if "instance" in told:
        assert "by (job)" not in rule["expr"].split(" and ")[0]


def test_alert_rule_commands_in_descriptions_are_valid() -> None:
    found = []
    for rule in RULES:
        for command in re.findall(r"`(rota [^`]*)`", rule["annotations"]["description"]):
            words = command.replace("{{ $labels.task }}", "task").split()[1:]
            try:
                parse_command([*words, "1"] if words == ["show"] else words)
            except click.ClickException as error:
                found.append(f"{rule['alert']}: {command}: {error.message}")

    assert_none(found)


def test_alert_rule_names_are_unique() -> None:
    names = [rule["alert"] for rule in RULES]

    assert len(set(names)) == len(names)


def test_alert_rule_tests_cover_quiet_and_firing_cases() -> None:
    [said] = read(TESTS)
    quiet: set[str] = set()
    loud: set[str] = set()
    for case in said["tests"]:
        for look in case.get("promql_expr_test", []):
            [name] = re.findall(r'alertname="(\w+)"', look["expr"])
            (loud if look["exp_samples"] else quiet).add(name)

    assert quiet == loud == {rule["alert"] for rule in RULES}
