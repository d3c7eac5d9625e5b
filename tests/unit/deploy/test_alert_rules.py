"""The alert rules and the dashboard: each rule has a runbook, a severity and a test, and both name only metrics that a
broker has.
"""

from __future__ import annotations

import re

import yaml

from tests.support.monitoring import REPOSITORY, RULE_TESTS, alerts, documented_metrics, metrics_in, queries

# Metrics of listeners with TLS, which the broker in docs/metrics.md has not.
OF_TLS = {"landline_ssl_certificate_days_left"}


def anchors(path: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / path).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_alert_has_a_runbook_that_exists() -> None:
    links = [alert["annotations"]["runbook_url"].split("#") for alert in alerts()]
    assert {path for path, _ in links} == {"docs/monitoring.md"}
    assert {anchor for _, anchor in links} <= anchors("docs/monitoring.md")
    assert [anchor for _, anchor in links] == [alert["alert"].lower() for alert in alerts()]


def test_each_alert_says_how_bad_it_is_and_what_happened() -> None:
    for alert in alerts():
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert {"summary", "description"} <= alert["annotations"].keys()


def test_each_alert_has_a_test_in_which_it_is_silent_fires_and_is_silent_again() -> None:
    """Further tests of an alert have a name that says more after a colon."""
    tests = {test["name"]: test for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]}
    assert {name for name in tests if ":" not in name} == {alert["alert"] for alert in alerts()}
    for name, test in tests.items():
        alert, is_further, _ = name.partition(":")
        checks = test["alert_rule_test"]
        assert {check["alertname"] for check in checks} == {alert}
        if not is_further:
            assert [bool(check.get("exp_alerts")) for check in checks] == [False, True, False]


def test_an_alert_names_only_metrics_that_a_broker_has() -> None:
    known = documented_metrics() | OF_TLS | {"up"}
    for alert in alerts():
        named = metrics_in(alert["expr"])
        assert named, alert["alert"]
        assert named <= known, alert["alert"]


def test_the_dashboard_names_only_metrics_that_a_broker_has() -> None:
    known = documented_metrics() | OF_TLS | {"up"}
    for title, query in queries():
        named = metrics_in(query)
        assert named, title
        assert named <= known, title


def test_metrics_are_told_from_labels_and_functions() -> None:
    text = 'sum by (job, process_x) (rate(kafka_a_total{kafka_b="kafka_c"}[5m])) / up'
    assert metrics_in(text.replace("kafka_b", "topic")) == {"kafka_a_total", "up"}
