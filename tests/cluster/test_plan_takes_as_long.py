"""How long a plan says that its roll takes, beside how long it does. Alone on the machine: a plan expects the pace at
which it was made.
"""

import json
import shlex
import time

import pytest

from tests.support.deploy_code import load
from tests.support.deploying import make

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

deploy_plan = load("plugins/filter/deploy_plan.py").deploy_plan


def expected_s(lab, plan):
    """What a plan would have expected at the pace of the machine at which it was made and applied: by the looks of
    both, as a host has noted those of the last apply for the next plan.
    """
    notes = [json.loads(lab.run(host.name, "cat /opt/landline/turns.json").stdout) for host in lab.hosts]
    (look_s,) = {note["rest"][-1][1] for note in notes if note["rest"]}
    pace = {"plan_s": (plan["look_s"] + look_s) / 2, "canary_s": plan["parts_s"]["canary"]}
    return deploy_plan(plan["brokers"], plan["zookeeper"], {**plan, **pace})["seconds"]


def test_a_plan_says_what_its_roll_does_and_how_long_it_takes(lab, tmp_path):
    file, errors = tmp_path / "plan.json", []
    # Those of before were beside other tests. The first one leaves what the next ones are measured by.
    for host in lab.hosts:
        lab.run(host.name, "rm --force /opt/landline/turns.json")
    for partitions in (2, 3, 4, 5):
        variables = shlex.quote(json.dumps({"broker_properties": {"num.partitions": partitions}}))
        arguments = [f"LAB={lab.name}", f"PLAN={file}", f"ANSIBLE_ARGS=--tags broker -e {variables}"]
        assert f"+num.partitions={partitions}" in make("plan", *arguments).stdout
        plan = json.loads(file.read_text())
        assert [row["action"] for row in plan["brokers"]] == ["restart"] * 3
        began = time.monotonic()
        make("apply", *arguments)
        took_s = time.monotonic() - began
        if plan["is_measured"]:
            expected = expected_s(lab, plan)
            print(f"planned {plan['seconds']} s, at the pace of both {expected} s, took {took_s:.1f} s")
            errors.append(abs(expected - took_s) / took_s)
            if errors[-1] <= 0.2:
                break
    make("deploy", f"LAB={lab.name}", "ANSIBLE_ARGS=--tags broker")
    assert min(errors) <= 0.2, errors
