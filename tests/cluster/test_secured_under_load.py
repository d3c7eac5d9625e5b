"""A cluster is secured and its certificates and CA are replaced, each step under a load of the clients that it is for,
with the history checker beside it. On hosts of this module's own.

test_secured_by_playbook looks at what each step does; this at what clients see.
"""

import json
import os
import shlex
from contextlib import contextmanager

import pytest

from chaos.load import Load, LoadPlan
from rig.topics import create_topic
from tests.support.checked_load import assert_no_anomaly
from tests.support.deploying import make
from tests.support.figures import keep_figures
from tests.support.lab_cluster import BROKER_PORT
from tests.support.labs import lab_session
from tests.support.playbook_costs import PlaybookCosts
from tools.client_file import ClientFile

pytestmark = [pytest.mark.cluster, pytest.mark.day_two, pytest.mark.slow, pytest.mark.timeout(1800)]

HOSTS = ("h1", "h2", "h3")
SSL_PORT, SASL_SSL_PORT = 9093, 9094
# What the login of the services may do: all with topics and groups of this prefix, and nothing with transactional ids.
PLAN = LoadPlan(topics=1, partitions=6, producers_transactional=0, records_per_s=200, seed=13)
# What is told of a quiet machine in docs/operations.md, and what one may show that does other things as well.
MOST_S = 1.0 if "FIGURES" in os.environ else 3.0


@pytest.fixture(scope="module")
def lab():
    make("wheelhouse")  # for which the network in here is no use
    with lab_session("checked", hosts=3) as lab, lab.inside():
        yield lab


class Secured:
    """Deploys and renews with a file of variables; the CA is a directory of this test's own."""

    def __init__(self, lab, directory):
        self._lab, self._directory = lab, directory
        self.costs = PlaybookCosts()
        self.records = 0

    def play(self, verb, tags=None, **variables):
        """Runs a verb of make, with its limits to these tags."""
        known = {
            "landline_certificates_dir": str(self._directory / "ca"),
            "landline_users": [{"name": "landline-services", "password": "of-the-services"}],
            **variables,
        }
        limits = f"--tags {tags} " if tags else ""
        given = f"ANSIBLE_ARGS={limits}-e {shlex.quote(json.dumps(known))}"
        return make(verb, f"LAB={self._lab.name}", given)

    def deploy(self, **variables):
        return self.play("deploy", "broker", **variables)

    def replace_ca(self, step, **variables):
        return self.play("certificates", landline_ca_rollover=step, **variables)

    def login(self):
        """How clients log in, by the file that the role wrote."""
        text = self._lab.run("h1", "cat /etc/landline/client.properties").stdout
        return ClientFile.parse(text).librdkafka()

    @contextmanager
    def load(self, port, directory, run, login):
        """A load by this listener, judged at its end: nothing lost, doubled, out of order."""
        bootstrap = ",".join(f"{host.address}:{port}" for host in self._lab.hosts)
        own = {key: value for key, value in login.items() if key != "bootstrap.servers"}
        with Load(bootstrap, PLAN, directory, run=run, client_config=own, makes_topics=False) as load:
            load.await_progress(500, timeout_s=120)
            yield load
            self.records += load.acked()
            assert_no_anomaly(self._lab, load, HOSTS)
            assert load.failed() == 0


@pytest.fixture(scope="module")
def secured(lab, tmp_path_factory):
    return Secured(lab, tmp_path_factory.mktemp("operator"))


def test_a_cluster_is_secured_and_its_ca_replaced_and_no_client_loses_anything(lab, secured, tmp_path):
    secured.play("deploy", "zookeeper,broker")
    plain = ",".join(f"{host.address}:{BROKER_PORT}" for host in lab.hosts)
    for run in ("plain", "landline.tls", "landline.login", "landline.both"):
        create_topic(plain, f"{run}-0", PLAN.partitions, 3, {"min.insync.replicas": "2"})

    def run(what, load, play):
        return secured.costs.run(what, load, play)

    logins = {"landline_security": "sasl_ssl"}
    with secured.load(BROKER_PORT, tmp_path, "plain", {}) as load:
        both = {"landline_security": "tls", "landline_security_also": ["none"]}
        run("`deploy`: TLS beside plain text", load, lambda: secured.deploy(**both))
    with secured.load(SSL_PORT, tmp_path, "landline.tls", secured.login()) as load:
        also = {**logins, "landline_security_also": ["tls"]}
        run("`deploy`: logins beside TLS, plain text goes", load, lambda: secured.deploy(**also))
    with secured.load(SASL_SSL_PORT, tmp_path, "landline.login", secured.login()) as load:
        run("`deploy`: logins only", load, lambda: secured.deploy(**logins))
        run("`certificates`: all are renewed", load, lambda: secured.play("certificates", **logins))
        run("`certificates`: another CA is trusted too", load, lambda: secured.replace_ca("trust", **logins))
    with secured.load(SASL_SSL_PORT, tmp_path, "landline.both", secured.login()) as load:
        run("`certificates`: it issues all", load, lambda: secured.replace_ca("issue", **logins))
        run("`certificates`: the old one goes", load, lambda: secured.replace_ca("drop", **logins))
    whole = {"took_s": secured.costs.took_s, "records": secured.records, "lost": 0}
    keep_figures("security", whole, secured.costs.rows)
    assert secured.costs.longest_gap_s < MOST_S, secured.costs.rows
