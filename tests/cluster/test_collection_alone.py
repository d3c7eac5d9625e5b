"""A first deploy by the collection alone: installed from its built file into an empty directory, by a short playbook
and an inventory as docs/collection.md has them, on a host that has nothing yet.
"""

from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from rig.topics import create_topic
from rig.wait import wait_until
from tests.support.deploying import changed
from tests.support.elsewhere import Elsewhere
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.next_release import NEXT
from tests.support.numbered_load import NumberedLoad, numbers_in

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


@pytest.fixture(scope="module")
def lab():
    with lab_session("alone", hosts=1) as lab, lab.inside():
        yield lab


def inventory(lab, archives: Path) -> str:
    host = lab.hosts[0]
    settings = {
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(lab.files.key),
        "ansible_ssh_common_args": f"{SSH} -o ControlPath={lab.files.sockets}/alone-%h",
        "landline_version": NEXT,
        "broker_archive_dir": str(archives),
    }
    hosts = {"hosts": {"kafka-a": {"ansible_host": host.address}}}
    return yaml.safe_dump({"all": {"vars": settings, "children": {"zookeeper": hosts, "brokers": hosts}}})


def test_a_built_collection_in_an_empty_directory_makes_a_cluster(lab, archives: Path, tmp_path: Path):
    home = tmp_path / "elsewhere"
    home.mkdir()
    elsewhere = Elsewhere(home, archives / f"landline-cluster-{NEXT}.tar.gz")
    (home / "hosts.yml").write_text(inventory(lab, archives))
    run = ("ansible-playbook", "--inventory", "hosts.yml", "site.yml")
    assert changed(elsewhere.run(*run))["kafka-a"] > 0
    bootstrap = f"{lab.hosts[0].address}:{BROKER_PORT}"
    assert len(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).brokers) == 1
    create_topic(bootstrap, "orders", 1, 1)
    with NumberedLoad(bootstrap, "orders", 1) as load:
        wait_until(lambda: len(load.acked) > 20, 60)
    assert load.failed == []
    assert load.acked <= numbers_in(bootstrap, "orders", 1)
    assert set(changed(elsewhere.run(*run)).values()) == {0}
