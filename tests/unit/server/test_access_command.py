"""Users, ACLs and quotas by a list: what `landline access` makes of it in ZooKeeper."""

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.__main__ import main
from broker.sasl.credential import ScramCredential
from broker.sasl.scram import new_credential
from broker.security.acl_store import AclStore
from broker.security.acls import AclOperation, PatternType, Permission, ResourcePattern, ResourceType
from broker.server.access_command import AccessError, bring_about, read_document
from broker.server.desired.plan import Drift
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import or_raise

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders", PatternType.PREFIXED)
MAY = {"principal": "User:alice", "resource": "topic", "name": "orders", "pattern": "prefixed"}


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    embedded = EmbeddedStore()
    embedded.connect(1000, threading.Event())
    yield embedded
    embedded.close()


def changes(store: EmbeddedStore, dry_run: bool = False, **parts: object) -> list[str]:
    return list(bring_about(read_document(json.dumps(parts)), store, dry_run=dry_run))


def kept(store: EmbeddedStore, **parts: object) -> list[tuple[str, str, str]]:
    """What stays though it is not as listed."""
    found: list[Drift] = []
    assert list(bring_about(read_document(json.dumps(parts)), store, found, dry_run=True)) == []
    return [row[:3] for row in found]


def credentials(store: EmbeddedStore, user: str) -> dict[str, str]:
    return ClusterStore(store).entity_config("users", user)


def test_a_user_is_set_once_and_again_for_another_password(store: EmbeddedStore) -> None:
    alice = {"name": "alice", "password": "one"}
    assert changes(store, users=[alice]) == ["user alice: SCRAM-SHA-512 set"]
    first = ScramCredential.parse(credentials(store, "alice")["SCRAM-SHA-512"])
    assert new_credential("SCRAM-SHA-512", "one", salt=first.salt) == first
    assert changes(store, users=[alice]) == []
    assert changes(store, users=[{**alice, "password": "two"}]) == ["user alice: SCRAM-SHA-512 set"]
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert changes(store, users=[{**alice, "password": "two", "mechanisms": both}]) == [
        "user alice: SCRAM-SHA-256 set"
    ]
    only_one = {"users": [{**alice, "password": "two"}]}
    assert changes(store, **only_one) == []
    assert kept(store, **only_one) == [("user alice", "SCRAM-SHA-256", "not listed")]
    without = {"users": [*only_one["users"], {"name": "alice", "mechanisms": both[:1], "state": "absent"}]}
    assert kept(store, **without) == [("user alice", "SCRAM-SHA-256", "absent")]
    assert changes(store, **without, delete=["alice"]) == ["user alice: SCRAM-SHA-256 removed"]
    assert credentials(store, "alice").keys() == {"SCRAM-SHA-512"}


def test_a_user_that_is_to_be_absent_goes_and_its_quotas_stay(store: EmbeddedStore) -> None:
    quota = {"user": "bob", "values": {"producer_byte_rate": 1048576}}
    changes(store, users=[{"name": "bob", "password": "x"}, {"name": "eve", "password": "x"}], quotas=[quota])
    gone = [{"name": "bob", "state": "absent"}, {"name": "eve", "state": "absent"}]
    assert changes(store, users=gone) == []
    assert kept(store, users=gone) == [(f"user {name}", "SCRAM-SHA-512", "absent") for name in ("bob", "eve")]
    assert changes(store, users=gone, delete=["eve", "bob"]) == [
        "user bob: SCRAM-SHA-512 removed",
        "user eve: SCRAM-SHA-512 removed",
    ]
    assert changes(store, users=gone, delete=["eve", "bob"]) == kept(store, users=gone) == []
    assert credentials(store, "bob") == {"producer_byte_rate": "1048576"}
    assert ClusterStore(store).entity_names("users") == ["bob"]


def test_acls_come_and_go_one_by_one_beside_others(store: EmbeddedStore) -> None:
    assert changes(store, acls=[{**MAY, "operations": ["Read", "Write"]}]) == [
        "acl Topic orders (Prefixed): Allow Read from * for User:alice added",
        "acl Topic orders (Prefixed): Allow Write from * for User:alice added",
    ]
    swap = [{**MAY, "operations": ["write"], "state": "absent"}, {**MAY, "operations": ["DescribeConfigs"]}]
    assert len(changes(store, acls=swap)) == 1
    assert changes(store, acls=swap, delete=["bob"]) == []
    gone = ["acl Topic orders (Prefixed): Allow Write from * for User:alice removed"]
    assert changes(store, acls=swap, delete=["alice"]) == gone
    assert changes(store, acls=swap, delete=["User:alice"]) == []
    read = or_raise(AclStore(store).read([ORDERS])[ORDERS])
    assert {(each.operation, each.permission) for each in read.entries} == {
        (AclOperation.READ, Permission.ALLOW),
        (AclOperation.DESCRIBE_CONFIGS, Permission.ALLOW),
    }
    cluster = {"principal": "User:a", "resource": "cluster", "operations": ["IdempotentWrite"]}
    assert changes(store, acls=[{**cluster, "permission": "deny", "host": "192.0.2.1"}]) == [
        "acl Cluster kafka-cluster (Literal): Deny IdempotentWrite from 192.0.2.1 for User:a added"
    ]


def test_quotas_are_set_for_users_client_ids_both_addresses_and_all_others(store: EmbeddedStore) -> None:
    rows = [
        {"user": "alice", "client_id": "app", "values": {"producer_byte_rate": 1000}},
        {"user": "<default>", "values": {"request_percentage": 50}},
        {"ip": "192.0.2.1", "values": {"connection_creation_rate": 5}},
    ]
    assert changes(store, quotas=rows) == [
        "quota users/alice/clients/app: producer_byte_rate set to 1000",
        "quota users/<default>: request_percentage set to 50.0",
        "quota ips/192.0.2.1: connection_creation_rate set to 5",
    ]
    assert changes(store, quotas=rows) == []
    without = [{"user": "alice", "client_id": "app", "state": "absent"}]
    of_app = ("quota users/alice/clients/app", "producer_byte_rate 1000")
    assert (*of_app, "absent") in kept(store, quotas=without)
    removed = ["quota users/alice/clients/app: producer_byte_rate removed"]
    assert changes(store, quotas=without, delete=["alice"]) == removed
    assert changes(store, quotas=without, delete=["alice"]) == []


def test_what_is_not_listed_is_told_and_stays(store: EmbeddedStore) -> None:
    users = [{"name": name, "password": "x"} for name in ("alice", "mallory")]
    acls = [{**MAY, "operations": ["Read", "Write"]}, {**MAY, "name": "bills", "operations": ["All"]}]
    quotas = [{"user": "alice", "values": {"producer_byte_rate": 7, "request_percentage": 50}}]
    quotas.append({"ip": "192.0.2.1", "values": {"connection_creation_rate": 5}})
    changes(store, users=users, acls=acls, quotas=quotas)
    assert kept(store, users=users, acls=acls, quotas=quotas) == []
    assert kept(store) == [], "nothing is listed"
    read = {**MAY, "operations": ["Read"]}
    listed = {
        "users": users[:1],
        "acls": [read],
        "quotas": [{"user": "alice", "values": {"producer_byte_rate": 7}}],
    }
    assert kept(store, **listed) == [
        ("user mallory", "SCRAM-SHA-512", "not listed"),
        ("acl Topic bills (Prefixed)", "Allow All from * for User:alice", "not listed"),
        ("acl Topic orders (Prefixed)", "Allow Write from * for User:alice", "not listed"),
        ("quota users/alice", "request_percentage 50.0", "not listed"),
        ("quota ips/192.0.2.1", "connection_creation_rate 5", "not listed"),
    ]
    assert changes(store, **listed) == []
    assert kept(store, users=users, acls=acls, quotas=quotas) == []


def test_a_dry_run_tells_the_changes_and_makes_none(store: EmbeddedStore) -> None:
    parts = {"users": [{"name": "a", "password": "x"}], "acls": [{**MAY, "operations": ["All"]}]}
    told = changes(store, dry_run=True, **parts)
    assert len(told) == 2
    assert changes(store, **parts) == told


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"users": [{"name": "a", "password": ""}]}, "users, entry 1: the password of a is missing"),
        (
            {"users": [{"name": "a", "password": "pw", "mechanisms": ["PLAIN"]}]},
            "users, entry 1: 'PLAIN' is none of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"users": {}}, "users must be a list"),
        ({"user": []}, "an object of users, acls, quotas, delete"),
        ({"delete": "alice"}, "delete must be a list of names"),
        ({"acls": [{**MAY, "operations": ["Raed"]}]}, "acls, entry 1: operation is 'Raed'"),
        ({"acls": [{**MAY, "principal": "alice", "operations": ["Read"]}]}, "'alice' is no principal"),
        (
            {"acls": [{**MAY, "resource": "cluster", "operations": ["Read"]}]},
            "Cluster knows no operation Read",
        ),
        ({"acls": [{**MAY, "pattern": "match", "operations": ["Read"]}]}, "neither literal nor prefixed"),
        ({"quotas": [{"values": {"producer_byte_rate": 1}}]}, "quotas, entry 1: the entity is empty"),
        ({"quotas": [{"user": "a", "values": {"producer_rate": 1}}]}, "producer_rate is no quota"),
        ({"quotas": [{"user": "a"}]}, "quotas, entry 1: values are missing"),
    ],
)
def test_a_wrong_entry_is_refused_before_anything_is_changed(
    store: EmbeddedStore, parts: dict[str, object], words: str
) -> None:
    good = [{"name": "first", "password": "secret"}]
    with pytest.raises(AccessError, match=words) as refused:
        changes(store, **({"users": good} | parts))
    assert "secret" not in str(refused.value)
    assert ClusterStore(store).entity_names("users") == []


@pytest.mark.usefixtures("quiet")
def test_the_command_says_what_is_wrong_with_the_input_and_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=1\n")
    for text, words in (("no", "the standard input is no JSON"), ("{}", "has no zookeeper.connect")):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert main(["access", str(properties)]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.usefixtures("quiet")
def test_the_command_prints_each_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the store of a standalone broker in the place of ZooKeeper's. A deploy knows changes by this."""
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=1\nzookeeper.connect=a:2181\n")
    store = tmp_path / "metadata.sqlite"
    monkeypatch.setattr("broker.server.access_command.ZooKeeperStore", lambda *_: EmbeddedStore(store))
    document = json.dumps({"users": [{"name": "alice", "password": "secret"}]})
    for told in ("user alice: SCRAM-SHA-512 set\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(document))
        assert main(["access", str(properties)]) == 0
        assert capsys.readouterr() == (told, "")
    monkeypatch.setattr(
        "sys.stdin", io.StringIO(json.dumps({"users": [{"name": "alice", "state": "absent"}]}))
    )
    assert main(["access", str(properties)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("SCRAM-SHA-512  absent  name alice in landline_access_delete too\n")
