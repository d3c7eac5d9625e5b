"""Landline decides as Apache Kafka 3.9.1 does: every API, asked by the same guest with the same ACLs at both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.security.acls import CLUSTER_NAME, AclOperation, PatternType, ResourceType
from broker.zookeeper import znodes
from rig.raw_client import RawClient
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.acl_matrix import (
    Place,
    Question,
    Rule,
    agree,
    await_services,
    outcome,
    questions,
    refusals,
    rules,
    told,
)
from tests.support.secured import (
    ADMIN,
    GUEST,
    OWNER,
    Acl,
    Pair,
    SecuredBroker,
    create_acls,
    delete_acls,
    secured_pair,
    znodes_of,
)
from tests.support.valid_requests import World, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
QUESTIONS = questions()
# Of these a client only sees less, or its own. An unknown id is unknown to everybody, and the first version of
# DescribeLogDirs has no error for all.
WITHOUT_NEEDS = {
    "metadata",
    "list_groups",
    "list_transactions",
    "describe_cluster",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "describe_log_dirs",
    "delete_topics",
}
AUTO_CREATE = {"auto.create.topics.enable": "true"}
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
NEW = "made-by-a-guest"
MAKERS = {
    "no-right": [],
    "describe": [Acl(TOPIC, NEW, AclOperation.DESCRIBE)],
    "create": [Acl(TOPIC, NEW, AclOperation.CREATE)],
    "create-by-prefix": [Acl(TOPIC, "made-", AclOperation.CREATE, PatternType.PREFIXED)],
    "both": [Acl(TOPIC, NEW, AclOperation.DESCRIBE), Acl(TOPIC, NEW, AclOperation.CREATE)],
    "create-on-the-cluster": [Acl(CLUSTER, CLUSTER_NAME, AclOperation.CREATE)],
    "describe-and-create-on-the-cluster": [
        Acl(TOPIC, NEW, AclOperation.DESCRIBE),
        Acl(CLUSTER, CLUSTER_NAME, AclOperation.CREATE),
    ],
}


class Side:
    """One broker with what it holds, its administrator, and the guest."""

    def __init__(self, broker: SecuredBroker, stack: ExitStack) -> None:
        self.broker = broker
        self.admin = stack.enter_context(broker.login(ADMIN))
        self.place = furnish(broker, self.admin)
        self._stack = stack
        self._guest = stack.enter_context(broker.login(GUEST))

    def ask(self, question: Question) -> list[str]:
        """What the guest is told."""
        try:
            return told(self._guest, question, self.place)
        except ConnectionError:
            self._guest = self._stack.enter_context(self.broker.login(GUEST))
            return ["closed"]


def furnish(broker: SecuredBroker, admin: RawClient) -> Place:
    """A topic with a record, a group with an offset, and a token of the owner's."""
    world = World(broker_id=broker.process.broker_id, port=broker.process.port)
    with znodes_of(broker.zk_connect) as store:
        epoch = store.get(znodes.broker_path(world.broker_id))[1].czxid
    made = admin.create_topic(world.topic)
    assert made.error_code == Errors.NONE
    world = World(world.broker_id, epoch, 1, port=world.port, topic_id=made.topic_id)
    wait_until(lambda: admin.produce(world.topic, 0, some_records()).error_code == Errors.NONE)
    await_services(admin, world)
    with broker.login(OWNER) as owner:
        nobody = {"owner_principal_type": None, "owner_principal_name": None}
        token: Any = owner.ask(
            ApiKey.CREATE_DELEGATION_TOKEN, 3, {**nobody, "renewers": [], "max_lifetime": -1}
        )
    assert token.error_code == Errors.NONE
    return Place(world, broker.sasl_port, token.token_id, token.hmac)


@pytest.fixture(scope="module")
def pair(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with secured_pair(zookeeper, tmp_path_factory.mktemp("acls"), AUTO_CREATE) as made:
        yield made


@pytest.fixture(scope="module")
def sides(pair: Pair) -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        yield Side(pair.kafka, stack), Side(pair.landline, stack)


@pytest.mark.parametrize("rule", [*rules()], ids=str)
def test_each_api_is_answered_as_by_kafka(sides: tuple[Side, Side], rule: Rule) -> None:
    kafka, landline = sides
    for side in sides:
        acls = rule.acls(side.place)
        assert create_acls(side.admin, acls) == [Errors.NONE] * len(acls)
    differing = []
    for question in QUESTIONS:
        theirs, ours = kafka.ask(question), landline.ask(question)
        if not agree(question, theirs, ours):
            differing.append(f"{question}: Kafka {theirs}, Landline {ours}")
    for side in sides:
        assert delete_acls(side.admin, None) >= len(set(rule.acls(side.place)))
    assert not differing, "\n".join(differing)


def test_every_request_is_refused_without_acls_and_served_with_all(sides: tuple[Side, Side]) -> None:
    """Else two brokers that refuse everything, or close every connection, would agree."""
    kafka, _ = sides
    by_title = {rule.title: rule for rule in rules()}
    free = {str(question) for question in QUESTIONS if not refusals(kafka.ask(question))}
    assert {name.split("-")[0] for name in free} == WITHOUT_NEEDS
    create_acls(kafka.admin, by_title["everything"].acls(kafka.place))
    told_then = {str(question): kafka.ask(question) for question in QUESTIONS}
    delete_acls(kafka.admin, None)
    assert {name for name, lines in told_then.items() if refusals(lines) or lines == ["closed"]} == set()


@pytest.mark.parametrize("title", MAKERS)
def test_a_topic_is_made_by_asking_for_it_where_kafka_makes_it(sides: tuple[Side, Side], title: str) -> None:
    """The error of a topic that is being made depends on the moment: whether it is refused is compared."""
    name = f"{NEW}-{title}"
    seen = []
    for side in sides:
        acls = [acl._replace(resource_name=acl.resource_name.replace(NEW, name)) for acl in MAKERS[title]]
        assert create_acls(side.admin, acls) == [Errors.NONE] * len(acls)
        with side.broker.login(GUEST) as guest:
            asked = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
            refused = refusals(outcome(guest.ask(ApiKey.METADATA, 4, asked)))
        delete_acls(side.admin)
        if not refused:
            wait_until(lambda side=side: exists(side, name), 30, what=f"{name} is there")
        seen.append((refused, exists(side, name)))
    assert seen[0] == seen[1], f"Kafka {seen[0]}, Landline {seen[1]}"


def exists(side: Side, name: str) -> bool:
    asked = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    return bool(side.admin.ask(ApiKey.METADATA, 4, asked).topics[0].error_code == Errors.NONE)
