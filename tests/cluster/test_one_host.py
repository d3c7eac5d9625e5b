"""A host with three brokers, from nothing to nothing, in a lab of this test's own."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.deploying import ROOT, changed, make
from tests.support.lab_cluster import LAB_ENV
from tests.support.labs import assert_no_trace, skip_without_hosts
from tools.inventory import Inventory

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]


def test_one_host_runs_three_brokers_and_leaves_nothing_behind():
    skip_without_hosts()
    name = f"t-single-{os.getpid()}"
    try:
        make("cluster-up", f"LAB={name}", "HOSTS=1", "BROKERS_PER_HOST=3")
        # Later verbs mean the same cluster: the numbers of hosts and brokers are not said again.
        again = make("deploy", f"LAB={name}", "ANSIBLE_ARGS=--tags broker")
        assert changed(again.stdout) == {"h1": 0}
        status = make("status", f"LAB={name}").stdout
        source = {**os.environ, LAB_ENV: name, "BROKERS_PER_HOST": "3"}
        listing = subprocess.run(
            [sys.executable, "inventory/lab.py", "--list"],
            cwd=ROOT,
            env=source,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        brokers = Inventory(json.loads(listing)).brokers()
        assert [(b.broker_id, b.port, b.http_port) for b in brokers] == [
            (1, 9092, 8092),
            (2, 9102, 8102),
            (3, 9112, 8112),
        ]
        assert all(f"│ {broker.broker_id} " in status for broker in brokers)
    finally:
        make("cluster-down", f"LAB={name}")
    assert_no_trace(name)
