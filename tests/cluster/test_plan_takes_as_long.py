"""How long a plan says that its roll takes, beside how long it does. Alone on the machine: a plan expects the pace at
which the last ones were applied.
"""

import json
import shlex
import statistics
import time

import pytest

from tests.support.deploying import make

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_plan_says_what_its_roll_does_and_how_long_it_takes(lab, tmp_path):
    file, errors = tmp_path / "plan.json", []
    # Those of before were beside other tests. The first one leaves what the next ones are measured by.
    for host in lab.hosts:
        lab.run(host.name, "rm --force /opt/landline/turns.json")
    for partitions in range(2, 8):
        variables = shlex.quote(json.dumps({"broker_properties": {"num.partitions": partitions}}))
        arguments = [f"LAB={lab.name}", f"PLAN={file}", f"ANSIBLE_ARGS=--tags broker -e {variables}"]
        assert f"+num.partitions={partitions}" in make("plan", *arguments).stdout
        plan = json.loads(file.read_text())
        assert [row["action"] for row in plan["brokers"]] == ["restart"] * 3
        began = time.monotonic()
        make("apply", *arguments)
        took_s = time.monotonic() - began
        if plan["is_measured"]:
            print(f"planned {plan['seconds']} s, took {took_s:.1f} s: {plan['parts_s']}")
            errors.append(abs(plan["seconds"] - took_s) / took_s)
    make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags broker")
    # The median of five: what others do to the machine meanwhile, no plan knows.
    assert statistics.median(errors) <= 0.2, errors
