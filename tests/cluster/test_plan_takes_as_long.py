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
# What others do to the machine meanwhile, no plan knows: the median of some is judged.
MOST = 0.2


def error_of_a_plan(lab, file, tags, **variables):
    """Makes a plan and does as it says; by how much it was wrong, None if nothing was measured before."""
    given = f"--tags {tags} -e {shlex.quote(json.dumps(variables))}"
    arguments = [f"LAB={lab.name}", f"PLAN={file}", f"ANSIBLE_ARGS={given}"]
    said = make("plan", *arguments).stdout
    plan = json.loads(file.read_text())
    began = time.monotonic()
    make("apply", *arguments)
    took_s = time.monotonic() - began
    print(f"planned {plan['seconds']} s, took {took_s:.1f} s: {plan['parts_s']}")
    error = abs(plan["seconds"] - took_s) / took_s if plan["is_measured"] else None
    return error, said, plan


@pytest.fixture(autouse=True)
def unmeasured(lab):
    """Those of before were beside other tests. A first one leaves what the next ones are measured by."""
    for host in lab.hosts:
        lab.run(host.name, "rm --force /opt/landline/turns.json /var/lib/zookeeper/landline-turns.json")
    yield
    make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags zookeeper,broker")


def test_a_plan_says_what_its_roll_does_and_how_long_it_takes(lab, tmp_path):
    errors = []
    for partitions in range(2, 8):
        properties = {"num.partitions": partitions}
        error, said, plan = error_of_a_plan(
            lab, tmp_path / "plan.json", "broker", broker_properties=properties
        )
        assert f"+num.partitions={partitions}" in said
        assert [row["action"] for row in plan["brokers"]] == ["restart"] * 3
        errors.append(error)
    assert errors[0] is None
    assert statistics.median(errors[1:]) <= MOST, errors


def test_a_plan_says_how_long_zookeepers_steps_and_a_roll_take(lab, tmp_path):
    errors = []
    for number in range(1, 5):
        variables = {
            "broker_properties": {"num.partitions": number},
            "zookeeper_properties": {"snapCount": 50_000 + number},
        }
        error, said, plan = error_of_a_plan(lab, tmp_path / "plan.json", "zookeeper,broker", **variables)
        assert f"+snapCount={50_000 + number}" in said
        assert "3 restarts and 3 steps of ZooKeeper, about" in said
        assert [row["action"] for row in plan["zookeeper"]] == ["restart"] * 3
        errors.append(error)
    assert errors[0] is None
    assert statistics.median(errors[1:]) <= MOST, errors
