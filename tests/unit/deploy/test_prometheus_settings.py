"""The role prometheus refuses settings with which it would scrape nothing, or alerts would lead nowhere."""

import json
import re
import sys

import pytest

from tests.support.plays import played

PLAY = """
- hosts: prometheus
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: landline.cluster.prometheus, tasks_from: preflight}
"""


def preflight(tmp_path, **settings):
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_become": False,
        "ansible_host": "192.0.2.1",
        **settings,
    }
    groups = {group: {"hosts": {"h1": variables}} for group in ("brokers", "prometheus")}
    (tmp_path / "hosts.json").write_text(json.dumps(groups))
    (tmp_path / "play.yml").write_text(PLAY)
    done = played(tmp_path, "-i", tmp_path / "hosts.json", tmp_path / "play.yml")
    return done.returncode, re.sub(r"\s+", " ", done.stdout)


TLS = {"landline_http_tls": True, "prometheus_scheme": "https", "prometheus_ca_file": "/etc/ca.pem"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"landline_http_tls": True}, "landline_http_tls is set: set prometheus_scheme to https"),
        ({**TLS, "landline_http_token": "secret"}, "landline_http_token is set: bring it to the host"),
        ({"prometheus_alertmanagers": ["a:9093"]}, "prometheus_runbook_base is docs/, which is no link"),
    ],
)
def test_what_would_watch_nothing_or_lead_nowhere_is_refused(tmp_path, settings, words):
    returned, said = preflight(tmp_path, **settings)
    assert returned != 0
    assert words in said
    assert "secret" not in said


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**TLS, "landline_http_token": ["secret"], "prometheus_token_file": "/etc/token"},
        {"landline_http_tls": True, "prometheus_targets": ["other:8092"]},
        {"prometheus_alertmanagers": ["a:9093"], "prometheus_runbook_base": "https://docs.example.org/"},
    ],
)
def test_what_fits_is_taken(tmp_path, settings):
    returned, said = preflight(tmp_path, **settings)
    assert returned == 0, said
