"""ACLs by the clients that people use, and an authorizer of one's own as docs/security.md shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, admin
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import SecurityDisabledError

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import REPOSITORY, LandlineStandalone
from rig.processes import ProcessFailedError
from rig.raw_client import RawClient
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
OWN_RULES = """
from file_authorizer import FileAuthorizer

class OwnRules(FileAuthorizer):
    def authorize(self, requester, operation, resource_type, name):
        is_broker = requester.client_address == "127.0.0.1"
        return is_broker or super().authorize(requester, operation, resource_type, name)
"""
ANY_ACL = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
BUILT_IN = "kafka.security.authorizer.AclAuthorizer"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "authorizer.class.name": BUILT_IN,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": 1,
    }
    with LandlineStandalone(tmp_path_factory.mktemp("acls") / "data", config) as running:
        yield running


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    """A broker with the authorizer of docs/security.md."""
    root = tmp_path_factory.mktemp("own")
    page = (REPOSITORY / "docs" / "security.md").read_text()
    own_section = page.split("### An authorizer of your own\n")[1].split("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", own_section, re.DOTALL)
    (root / "file_authorizer.py").write_text(example)
    (root / "own_rules.py").write_text(OWN_RULES)
    (root / "rules").write_text("User:ANONYMOUS Write orders-\n")
    config: dict[str, object] = {
        "authorizer.class.name": "own_rules:OwnRules",
        "authorizer.file": root / "rules",
        "offsets.topic.num.partitions": 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(root))
        made = LandlineStandalone(root / "data", config)
    with made:
        yield made


def test_kafka_python_makes_finds_and_deletes_acls(guarded: LandlineStandalone) -> None:
    client = KafkaAdminClient(bootstrap_servers=guarded.bootstrap)
    orders = ResourcePattern(ResourceType.TOPIC, "orders-", ACLResourcePatternType.PREFIXED)
    acl = ACL("User:bob", "*", ACLOperation.READ, ACLPermissionType.ALLOW, orders)
    made = client.create_acls([acl])
    assert [one.principal for one in made["succeeded"]] == ["User:bob"]
    matching = ResourcePatternFilter(ResourceType.TOPIC, "orders-eu", ACLResourcePatternType.MATCH)
    wanted = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, matching)
    found, _ = client.describe_acls(wanted)
    assert [(one.principal, one.resource_pattern.resource_name) for one in found] == [("User:bob", "orders-")]
    ((_, deleted, _),) = client.delete_acls([wanted])
    assert len(deleted) == 1
    assert client.describe_acls(wanted)[0] == []
    client.close()


def test_confluents_client_makes_finds_and_deletes_acls(guarded: LandlineStandalone) -> None:
    client = admin.AdminClient({"bootstrap.servers": guarded.bootstrap})
    binding = admin.AclBinding(
        admin.ResourceType.GROUP, "g", admin.ResourcePatternType.LITERAL, "User:carol", "10.0.0.1",
        admin.AclOperation.READ, admin.AclPermissionType.DENY,
    )  # fmt: skip
    (future,) = client.create_acls([binding]).values()
    future.result(30)
    wanted = admin.AclBindingFilter(
        admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, "User:carol", None,
        admin.AclOperation.ANY, admin.AclPermissionType.ANY,
    )  # fmt: skip
    assert client.describe_acls(wanted).result(30) == [binding]
    (deleted,) = client.delete_acls([wanted]).values()
    assert deleted.result(30) == [binding]
    assert client.describe_acls(wanted).result(30) == []
    topics = client.list_topics(timeout=30)
    assert topics.brokers


def test_acls_of_a_broker_without_an_authorizer_are_security_disabled(tmp_path: Path) -> None:
    """librdkafka 2.16 returns an empty list for the error of DescribeAcls."""
    with LandlineStandalone(tmp_path / "data") as free:
        client = KafkaAdminClient(bootstrap_servers=free.bootstrap)
        any_resource = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        with pytest.raises(SecurityDisabledError, match="No Authorizer"):
            client.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, any_resource))
        client.close()


def test_clients_of_a_super_user_produce_and_consume_as_before(guarded: LandlineStandalone) -> None:
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "enable.idempotence": True})
    producer.produce("as-before", b"value")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": guarded.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["as-before"])
    record = consumer.poll(30)
    assert record is not None
    assert record.value() == b"value"
    consumer.commit(record, asynchronous=False)
    consumer.close()


def test_the_documented_authorizer_of_ones_own_decides(own: LandlineStandalone) -> None:
    with RawClient(HOST, own.port) as client:
        for name in ("orders-eu", "secret"):
            assert client.create_topic(name).error_code == Errors.NONE
    with RawClient(HOST, own.port, from_host="127.0.0.2") as guest:
        produced = [guest.produce(name, 0, some_records()).error_code for name in ("orders-eu", "secret")]
        assert produced == [Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED]
        assert guest.fetch("orders-eu", 0, 0).error_code == Errors.TOPIC_AUTHORIZATION_FAILED
        logs = guest.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
        assert logs.error_code == Errors.CLUSTER_AUTHORIZATION_FAILED
        ids = {"transactional_id": None, "transaction_timeout": 1}
        assert guest.ask(ApiKey.INIT_PRODUCER_ID, 4, ids).error_code == Errors.NONE
        asked = {"topics": None, "allow_auto_topic_creation": False}
        operations = {
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        for _ in range(2):
            answer = guest.ask(ApiKey.METADATA, 10, {**asked, **operations})
            assert [topic.name for topic in answer.topics] == ["orders-eu"]
    with RawClient(HOST, own.port) as client:
        (result,) = client.ask(ApiKey.DELETE_ACLS, 3, {"filters": [ANY_ACL]}).filter_results
        assert result.error_code == Errors.SECURITY_DISABLED
        assert "OwnRules has no ACLs" in result.error_message


@pytest.mark.parametrize(
    "name", ["no_such_module:Rules", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
)
def test_an_authorizer_that_there_is_not_ends_the_start_with_what_is_possible(
    tmp_path: Path, name: str
) -> None:
    broker = LandlineStandalone(tmp_path / "data", {"authorizer.class.name": name})
    with pytest.raises(ProcessFailedError):
        broker.start()
    for part in (name, BUILT_IN, "package.module:Class"):
        assert part in broker.log_text()
