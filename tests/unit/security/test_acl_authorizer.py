"""AclAuthorizer over a real store: what it writes, what it takes up, and what several brokers do at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from broker.protocol.errors import Errors
from broker.security import acl_znodes
from broker.security.acl_authorizer import AclAuthorizer
from broker.security.acl_store import AclStore
from broker.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from broker.security.authorizer import AuthorizerError
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import BadVersionError, ConnectionLossError, SessionEvent
from broker.zookeeper.znodes import BadZnodeError
from rig.wait import wait_until
from tests.support.clocks import ManualClock

ADMIN = SimpleNamespace(principal="User:admin", client_address="10.0.0.9")
ALICE = SimpleNamespace(principal="User:alice", client_address="10.0.0.1")
ORDERS = "/kafka-acl/Topic/orders"


def acl(
    name: str = "orders",
    operation: AclOperation = AclOperation.READ,
    principal: str = "User:alice",
    kind: ResourceType = ResourceType.TOPIC,
    how: PatternType = PatternType.LITERAL,
) -> AclBinding:
    entry = AccessControlEntry(principal, "*", operation, Permission.ALLOW)
    return AclBinding(ResourcePattern(kind, name, how), entry)


def reads(authorizer: AclAuthorizer, name: str = "orders") -> bool:
    return authorizer.authorize(ALICE, AclOperation.READ, ResourceType.TOPIC, name)


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    made = EmbeddedStore()
    made.connect()
    yield made
    made.close()


@pytest.fixture
def started(store):
    """Makes authorizers of one cluster."""
    made = []

    def start(**settings: str) -> AclAuthorizer:
        authorizer = AclAuthorizer(store, AclStore(store, pause=lambda _s: None))
        made.append(authorizer)
        authorizer.start({key.replace("_", "."): value for key, value in settings.items()})
        return authorizer

    yield start
    for authorizer in made:
        authorizer.close()


def test_a_created_acl_counts_at_once_and_is_written_and_announced_as_by_kafka(store, started) -> None:
    authorizer = started()
    assert not reads(authorizer)
    assert authorizer.create_acls(ADMIN, [acl(), acl("or", how=PatternType.PREFIXED)]) == [None, None]
    assert reads(authorizer)
    assert reads(authorizer, "oranges")
    row = b'{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}'
    assert store.get(ORDERS)[0] == b'{"acls":[' + row + b'],"version":1}'
    assert store.children("/kafka-acl-extended/prefixed/Topic") == ["or"]
    (name,) = store.children("/kafka-acl-changes")
    assert name.startswith("acl_changes_0")
    assert store.get(f"/kafka-acl-changes/{name}")[0] == b"TOPIC:orders"


def test_what_another_broker_writes_and_announces_is_taken_up(started) -> None:
    ours, others = started(), started()
    others.create_acls(ADMIN, [acl()])
    wait_until(lambda: reads(ours), what="the other broker's ACL")
    others.delete_acls(ADMIN, [AclFilter()])
    wait_until(lambda: not reads(ours), what="its end")


def test_acls_that_were_there_before_the_start_count(store, started) -> None:
    started().create_acls(
        ADMIN, [acl(), acl("o", how=PatternType.PREFIXED), acl("g", kind=ResourceType.GROUP)]
    )
    assert len(started().acls(AclFilter())) == 3


def test_both_of_two_brokers_that_change_one_resource_at_once_have_their_way(started) -> None:
    """Each writes only over the version that it read."""
    brokers = [started(), started()]

    def write(broker: AclAuthorizer, number: int) -> None:
        for turn in range(20):
            result = broker.create_acls(ADMIN, [acl(principal=f"User:{number}-{turn}")])
            assert result == [None]

    threads = [threading.Thread(target=write, args=pair) for pair in ((brokers[0], 0), (brokers[1], 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for broker in brokers:
        wait_until(lambda broker=broker: len(broker.acls(AclFilter())) == 40, what="all 40 ACLs")


def test_a_stale_view_neither_overwrites_nor_misses_what_another_broker_wrote(
    store, started, monkeypatch
) -> None:
    ours, others = started(), started()
    others.create_acls(ADMIN, [acl()])
    wait_until(lambda: reads(ours), what="the first ACL")
    monkeypatch.setattr(ours, "_follow", lambda: None)
    others.create_acls(ADMIN, [acl(principal="User:bob")])
    ours.create_acls(ADMIN, [acl(principal="User:carol")])
    assert len(acl_znodes.decode_acls(ORDERS, store.get(ORDERS)[0])) == 3
    others.create_acls(ADMIN, [acl(principal="User:dave")])
    exact = AclFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL)
    (deleted,) = ours.delete_acls(ADMIN, [exact])
    assert {each.binding.entry.principal for each in deleted} == {
        f"User:{name}" for name in ("alice", "bob", "carol", "dave")
    }
    assert store.exists(ORDERS) is None


def test_an_update_that_others_overtake_each_time_is_an_error_of_its_acls_alone(
    store, started, monkeypatch
) -> None:
    authorizer = started()
    authorizer.create_acls(ADMIN, [acl()])

    def refuse(*_: object) -> None:
        raise BadVersionError("changed")

    monkeypatch.setattr(store, "set", refuse)
    error, fine = authorizer.create_acls(ADMIN, [acl(principal="User:bob"), acl("other")])
    assert error is not None
    assert error.error_code is Errors.UNKNOWN_SERVER_ERROR
    assert fine is None


def test_a_write_whose_answer_was_lost_is_announced_all_the_same(store, started, monkeypatch) -> None:
    authorizer = started()
    real = store.create

    def lose(path: str, data: bytes = b"", **flags: bool) -> object:
        result = real(path, data, **flags)
        if path == ORDERS:
            raise BadVersionError("what a second try sees")
        return result

    monkeypatch.setattr(store, "create", lose)
    assert authorizer.create_acls(ADMIN, [acl()]) == [None]
    assert len(store.children("/kafka-acl-changes")) == 1


def test_the_last_acl_of_a_resource_takes_its_znode_with_it(store, started) -> None:
    authorizer = started()
    authorizer.create_acls(ADMIN, [acl()])
    (deleted,) = authorizer.delete_acls(ADMIN, [AclFilter(principal="User:alice")])
    assert [each.binding for each in deleted] == [acl()]
    assert store.exists(ORDERS) is None
    assert len(store.children("/kafka-acl-changes")) == 2


def test_an_acl_of_two_filters_is_told_for_the_first(started) -> None:
    authorizer = started()
    authorizer.create_acls(ADMIN, [acl()])
    first, second = authorizer.delete_acls(ADMIN, [AclFilter(), AclFilter(principal="User:alice")])
    assert (len(first), len(second)) == (1, 0)


@pytest.mark.parametrize(
    "binding",
    [
        acl(""),
        acl("a/b"),
        acl(".."),
        acl("other-cluster", kind=ResourceType.CLUSTER),
        acl(principal="alice"),
        acl(operation=AclOperation.ANY),
        acl(operation=AclOperation.UNKNOWN),
        acl(kind=ResourceType.ANY),
        acl(how=PatternType.MATCH),
    ],
)
def test_an_acl_that_no_authorizer_could_use_is_refused(store, started, binding) -> None:
    (error,) = started().create_acls(ADMIN, [binding])
    assert error.error_code is Errors.INVALID_REQUEST
    assert store.children("/kafka-acl-changes") == []


def test_super_users_may_do_everything_and_others_nothing_without_acls(started) -> None:
    authorizer = started(super_users="User:alice ; User:CN=b,O=c")
    assert reads(authorizer)
    assert not authorizer.authorize(ADMIN, AclOperation.READ, ResourceType.TOPIC, "orders")


def test_everybody_may_use_a_resource_without_acls_if_the_config_says_so(started) -> None:
    authorizer = started(allow_everyone_if_no_acl_found="True")
    assert reads(authorizer)
    authorizer.create_acls(ADMIN, [acl(principal="User:bob")])
    assert not reads(authorizer)


def test_a_super_user_who_is_no_principal_ends_the_start(started) -> None:
    with pytest.raises(AuthorizerError, match="'alice' is no principal"):
        started(super_users="alice")


def test_an_unreadable_acl_ends_the_start_because_it_may_be_a_denial(store, started) -> None:
    started()
    store.create(ORDERS, b"{")
    with pytest.raises(BadZnodeError, match=ORDERS):
        started()


def test_an_acl_that_becomes_unreadable_leaves_what_was_known_and_the_others(store, started) -> None:
    authorizer = started()
    authorizer.create_acls(ADMIN, [acl()])
    store.set(ORDERS, b"{")
    store.create("/kafka-acl/Topic/new", acl_znodes.encode_acls([acl().entry]))
    for changed in (b"TOPIC:orders", b"TOPIC:new"):
        store.create("/kafka-acl-changes/acl_changes_", changed, sequence=True)
    wait_until(lambda: reads(authorizer, "new"), what="the readable one")
    assert reads(authorizer)


def test_an_announcement_that_makes_no_sense_has_everything_read(store, started) -> None:
    authorizer = started()
    store.create(ORDERS, acl_znodes.encode_acls([acl().entry]))
    store.create("/kafka-acl-changes/acl_changes_", b"?", sequence=True)
    wait_until(lambda: reads(authorizer), what="the ACL nobody named")


def test_announcements_older_than_a_quarter_of_an_hour_are_deleted(store) -> None:
    clock = ManualClock()
    acls = AclStore(store, clock)
    acls.create_paths()
    pattern = acl().pattern
    acls.update(pattern, lambda entries: entries | {acl().entry})
    (path,) = acls.announcements()
    clock.now_ms = store.get(path)[1].ctime_ms + 15 * 60_000
    acls.purge()
    assert acls.announcements() == {path}
    clock.now_ms += 1
    acls.purge()
    assert acls.announcements() == set()


def test_verdicts_that_are_kept_have_a_bound(started, monkeypatch) -> None:
    monkeypatch.setattr("broker.security.acl_snapshot.MOST_VERDICTS", 10)
    authorizer = started()
    for number in range(100):
        reads(authorizer, f"t{number}")
    assert len(authorizer._snapshot.verdicts) <= 10


def test_after_a_new_session_everything_is_read_because_announcements_may_have_come_and_gone(
    store, started
) -> None:
    authorizer = started()
    store.create(ORDERS, acl_znodes.encode_acls([acl().entry]))
    assert not reads(authorizer)
    authorizer._on_session_event(SessionEvent.CONNECTED)
    wait_until(lambda: reads(authorizer), what="the ACL that nobody announced")


def test_while_the_store_is_away_the_last_acls_hold_and_then_the_changes_count(
    store, started, monkeypatch
) -> None:
    monkeypatch.setattr("broker.zookeeper.change_follower.RETRY_S", 0.01)
    authorizer, others = started(), started()
    others.create_acls(ADMIN, [acl()])
    wait_until(lambda: reads(authorizer), what="the first ACL")
    tries = []

    def away() -> set[str]:
        tries.append(1)
        raise ConnectionLossError("away")

    monkeypatch.setattr(authorizer._store, "announcements", away)
    others.delete_acls(ADMIN, [AclFilter()])
    wait_until(lambda: len(tries) > 2, what="a few tries")
    assert reads(authorizer)
    monkeypatch.undo()
    wait_until(lambda: not reads(authorizer), what="the change")


@pytest.mark.parametrize("failing", ["announcements", "announced", "read_all"])
def test_what_could_not_be_read_for_whatever_reason_is_read_with_all_the_rest(
    store, started, monkeypatch, failing
) -> None:
    monkeypatch.setattr("broker.zookeeper.change_follower.FAILED_RETRY_S", 0.01)
    authorizer = started()
    tries = []

    def broken(*_: object) -> None:
        tries.append(1)
        raise RecursionError("not the store's")

    with monkeypatch.context() as patch:
        patch.setattr(authorizer._store, failing, broken)
        store.create(ORDERS, acl_znodes.encode_acls([acl().entry]))
        if failing == "read_all":
            authorizer._on_session_event(SessionEvent.CONNECTED)
        else:
            store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequence=True)
        wait_until(lambda: tries, what="a reading that fails")
        if failing == "announced":
            # It may fail for ever, by an announcement that nobody can read. That must not hide the later ones.
            wait_until(lambda: reads(authorizer), what="the ACL")
    wait_until(lambda: reads(authorizer), what="the ACL")


def test_verdicts_about_long_names_are_not_kept(started) -> None:
    authorizer = started()
    authorizer.create_acls(ADMIN, [acl("x", how=PatternType.PREFIXED)])
    for size in (255, 256, 32_000):
        assert reads(authorizer, "x" * size)
    assert [len(key[4]) for key in authorizer._snapshot.verdicts] == [255]
