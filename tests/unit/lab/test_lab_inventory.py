import json
import os
import subprocess
from pathlib import Path

import pytest

from lab import inventory
from lab.errors import UsageError
from lab.state import Bind, LabFiles, LabState

SCRIPT = Path(__file__).parents[3] / "inventory/lab.py"


@pytest.fixture
def lab_of(tmp_path):
    """Writes the state of a lab `inv` with this many hosts."""

    def make(hosts):
        files = LabFiles(tmp_path, "inv")
        files.home.mkdir(exist_ok=True)
        files.save(LabState("inv", "/image", hosts))

    return make


def run_script(root, *arguments, **environment):
    environment = {**os.environ, "LANDLINE_LAB_STATE": str(root), "LANDLINE_LAB": "inv", **environment}
    return subprocess.run([SCRIPT, *arguments], env=environment, capture_output=True, text=True, check=False)


def listing(root, **environment):
    done = run_script(root, "--list", **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_three_hosts_are_all_brokers_and_workers_with_one_spark_master(tmp_path, lab_of):
    lab_of(3)
    found = listing(tmp_path)
    assert found["brokers"]["hosts"] == found["spark_workers"]["hosts"] == ["h1", "h2", "h3"]
    assert found["spark_master"]["hosts"] == ["h1"]


@pytest.mark.parametrize(("hosts", "servers"), [(1, 1), (2, 1), (3, 3), (4, 3), (7, 3)])
def test_the_ensemble_is_odd_and_at_most_three(tmp_path, lab_of, hosts, servers):
    lab_of(hosts)
    assert listing(tmp_path)["zookeeper"]["hosts"] == ["h1", "h2", "h3"][:servers]


def test_broker_ids_do_not_overlap_with_several_brokers_per_host(tmp_path, lab_of):
    lab_of(3)
    variables = listing(tmp_path, BROKERS_PER_HOST="3")["_meta"]["hostvars"]
    assert {v["brokers_per_host"] for v in variables.values()} == {3}
    assert [variables[host]["broker_first_id"] for host in ("h1", "h2", "h3")] == [1, 4, 7]


def test_hosts_are_reached_with_the_labs_own_key_and_connections(tmp_path, lab_of):
    lab_of(1)
    variables = listing(tmp_path)["_meta"]["hostvars"]["h1"]
    assert variables["ansible_host"] == "10.89.0.11"
    assert variables["ansible_user"] == "root"
    assert variables["ansible_ssh_private_key_file"] == f"{tmp_path}/inv/id_ed25519"
    assert f"-F {tmp_path}/inv/ssh_config" in variables["ansible_ssh_common_args"]
    assert f"ControlPath={tmp_path}/inv/cm/%h" in variables["ansible_ssh_common_args"]
    assert variables["ansible_python_interpreter"] == "/usr/bin/python3"
    assert variables["landline_lab"], "by which playbooks for labs only know one"


def test_the_directory_that_controller_and_hosts_share_is_sparks(tmp_path):
    files = LabFiles(tmp_path, "inv")
    files.home.mkdir()
    binds = (Bind("/pyspark", "/opt/spark"), Bind("/srv/inv", "/srv/inv", writable=True))
    files.save(LabState("inv", "/image", 1, binds=binds))
    assert listing(tmp_path)["_meta"]["hostvars"]["h1"]["spark_shared_dir"] == "/srv/inv"


def test_one_hosts_variables_are_those_of_the_list(tmp_path, lab_of):
    lab_of(2)
    alone = json.loads(run_script(tmp_path, "--host", "h2").stdout)
    assert alone == listing(tmp_path)["_meta"]["hostvars"]["h2"]


def test_without_the_lab_ansible_is_told_how_to_make_it(tmp_path):
    done = run_script(tmp_path, "--list")
    assert done.returncode == 1
    assert done.stderr.strip() == "lab: there is no lab 'inv': make it with `.venv/bin/lab up --name inv`"


@pytest.mark.parametrize("text", ["0", "-1", "two", "65", "1.5"])
def test_a_senseless_number_of_brokers_per_host_is_refused(text):
    with pytest.raises(UsageError, match="BROKERS_PER_HOST"):
        inventory.brokers_per_host({"BROKERS_PER_HOST": text})
