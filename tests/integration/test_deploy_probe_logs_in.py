"""What a roll costs clients is measured with the login of the inventory, on a cluster with SASL over TLS and ACLs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rig.topics import all_records
from rig.wait import wait_until
from tests.support.secure_cluster import PASSWORDS, SecureCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[2] / "roles/broker/files/deploy_probe.py"
TOPIC = "landline.probe"


def probe(verb: str, directory: Path, cluster: SecureCluster, user: str) -> str:
    settings = {
        "mode": "sasl_ssl",
        "bootstrap": cluster.bootstrap,
        "trusted": cluster.ca.read_text(),
        "user": user,
        "password": PASSWORDS[user],
        "mechanism": "SCRAM-SHA-512",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), verb, str(directory)],
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def test_a_user_who_may_create_the_topic_gets_figures_and_a_page_without_the_password(
    secured: SecureCluster, tmp_path: Path
) -> None:
    login = secured.librdkafka("admin")

    def written() -> int:
        try:
            return len(all_records(secured.bootstrap, TOPIC, login))
        except Exception:  # there is no such topic yet
            return 0

    assert probe("begin", tmp_path / "cost", secured, "admin") == ""
    wait_until(lambda: written() > 50, 120, what="it writes")
    said = probe("end", tmp_path / "cost", secured, "admin")
    told = re.search(r"landline\.probe for \d+ s: (\d+) records acknowledged, 0 failed, 0 not read", said)
    assert told is not None, said
    page = (tmp_path / "cost/cost.html").read_text()
    assert f"<th>acknowledged<td>{told[1]}" in page
    assert int(told[1]) > 50
    assert not [file for file in (tmp_path / "cost").iterdir() if PASSWORDS["admin"] in file.read_text()]


def test_a_user_who_may_not_is_told_so_at_the_end(secured: SecureCluster, tmp_path: Path) -> None:
    assert probe("begin", tmp_path / "cost", secured, "bob") == ""
    said = probe("end", tmp_path / "cost", secured, "bob")
    assert said.startswith("What it cost clients was not measured: ")
    assert json.loads((tmp_path / "cost/cost.json").read_text()) == {
        "skipped": said.split(": ", 1)[1].strip()
    }
