"""Every client on SASL_SSL with ACLs, with the settings of docs/security.md: what it may do, and what it is told.

Two brokers, so that credentials and ACLs are known to the one that did not store them.
"""

from __future__ import annotations

import gc
import json
import re
import subprocess
from collections.abc import Iterator, Mapping

import pytest

from rig.kafka_dist import KAFKA_VERSION, KRAFT_VERSION
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from tests.support.kafka_jvm import kafka_jvm
from tests.support.secure_cluster import WRONG, SecureCluster, create_topics
from tests.support.secured_clients import (
    CLIENT_WARNINGS,
    AioKafka,
    ConfluentKafka,
    Java,
    KafkaPython,
    Kcat,
    Login,
    SecuredClient,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400), *CLIENT_WARNINGS]

KINDS: Mapping[str, type] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "kcat": Kcat,
}
JAVA = {f"java-{version}": version for version in (KAFKA_VERSION, KRAFT_VERSION)}
NAMES = [*KINDS, *JAVA]
MECHANISMS = [(name, mechanism) for name in NAMES for mechanism in KINDS.get(name, Java).mechanisms]


def topic_of(name: str) -> str:
    return f"alice-{name}"


@pytest.fixture(scope="module")
def cluster(secured: SecureCluster) -> Iterator[SecureCluster]:
    topics = [f"{topic_of(name)}-{mechanism}" for name, mechanism in MECHANISMS]
    create_topics(secured, "private", *map(topic_of, NAMES), *topics)
    yield secured
    gc.collect()


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, cluster: SecureCluster) -> Iterator[SecuredClient]:
    """The client of this name; one JVM for each version of Java's."""
    name: str = request.param
    if name in KINDS:
        yield KINDS[name](cluster)
        return
    tokens = (cluster.root / "java.token").as_uri()
    with kafka_jvm(cluster.root / f"{name}.log", JAVA[name], tokens) as jvm:
        yield Java(cluster, jvm)


each_client = pytest.mark.parametrize("client", NAMES, indirect=True)


@pytest.mark.parametrize(("client", "mechanism"), MECHANISMS, indirect=["client"])
def test_it_writes_and_reads_in_a_group(
    client: SecuredClient, mechanism: str, cluster: SecureCluster, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.params["client"]
    login = Login("alice", mechanism, token=cluster.token("alice") if mechanism == "OAUTHBEARER" else "")
    topic = f"{topic_of(name)}-{mechanism}"
    client.write(login, topic, b"hello")
    assert client.read(login, topic, f"alice-{name}") == b"hello"


@each_client
def test_a_user_without_acls_is_told_which_topic_may_not_be_written(
    client: SecuredClient, request: pytest.FixtureRequest
) -> None:
    topic = topic_of(request.node.callspec.params["client"])
    with pytest.raises(client.refusals.error, match=client.refusals.topic):
        client.write(Login("bob"), topic, b"hello")


@pytest.mark.parametrize("client", [name for name in NAMES if name != "kafka-python"], indirect=True)
def test_a_topic_that_may_not_be_read_is_told_as_one(client: SecuredClient) -> None:
    """kafka-python 3.0 logs it, and raises it only if the metadata come after its group's coordinator."""
    with pytest.raises(client.refusals.error, match=client.refusals.topic):
        client.read(Login("alice"), "private", "alice-curious")


@each_client
def test_a_group_that_may_not_be_joined_is_told_as_one(
    client: SecuredClient, request: pytest.FixtureRequest
) -> None:
    topic = topic_of(request.node.callspec.params["client"])
    with pytest.raises(client.refusals.error, match=client.refusals.group):
        client.read(Login("alice"), topic, "others")


@each_client
def test_a_wrong_password_is_told_as_one(
    client: SecuredClient, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """kafka-python and aiokafka raise that they found no broker, and log why."""
    topic = topic_of(request.node.callspec.params["client"])
    with pytest.raises(client.refusals.error) as refused:
        client.write(Login("alice", wrong_password=WRONG), topic, b"hello")
    assert re.search(client.refusals.login, str(refused.value) + caplog.text)


@pytest.mark.parametrize("client", ["confluent-kafka", *JAVA], indirect=True)
def test_a_token_that_is_not_signed_by_the_key_is_refused(
    client: SecuredClient, cluster: SecureCluster
) -> None:
    login = Login("alice", "OAUTHBEARER", token=cluster.forged_token("alice"))
    with pytest.raises(client.refusals.error, match=client.refusals.login):
        client.write(login, "private", b"hello")


def test_topics_come_by_a_list_with_the_brokers_own_login(cluster: SecureCluster) -> None:
    if not isinstance(cluster.brokers.brokers[1], LandlineBroker):
        pytest.skip("the command reads Landline's properties")
    listed = json.dumps({"topics": [{"name": "listed", "partitions": 2, "replication_factor": 2}]})
    argv = [*COMMAND, "topics", str(cluster.root / "data-1.properties"), "--json"]

    def changes() -> list[str]:
        done = subprocess.run(
            argv, cwd=REPOSITORY, input=listed, stdout=subprocess.PIPE, text=True, check=True
        )
        return list(json.loads(done.stdout)["changes"])

    assert changes() == ["topic listed: created with 2 partitions, replication factor 2"]
    assert changes() == []
