"""DescribeCluster and UpdateFeatures: what a cluster with ZooKeeper says of itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import BrokerInfo, MetadataUpdate
from broker.protocol.errors import Errors
from broker.server.access import NOT_ASKED
from broker.server.apis import describe_cluster, update_features
from broker.server.metadata_cache import MetadataCache

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OPERATIONS_OF_A_CLUSTER = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


@pytest.fixture
def ctx() -> SimpleNamespace:
    """Two brokers, of which one alone has the listener; the second is the controller."""
    cache = MetadataCache("PLAINTEXT")
    brokers = [
        BrokerInfo(1, {"PLAINTEXT": ("one", 9092)}, rack="a"),
        BrokerInfo(2, {"PLAINTEXT": ("two", 9092), "INTERNAL": ("two", 9093)}),
    ]
    cache.update(MetadataUpdate(2, brokers, {}, []))
    return SimpleNamespace(
        metadata_cache=cache,
        cluster_id=CLUSTER_ID,
        broker_id=1,
        access=None,
        controller=SimpleNamespace(is_active=True),
    )


def ask(ctx, module, key, version, listener="PLAINTEXT", **fields):
    body = memoryview(codec.encode(key, version, "request", fields))
    connection = ConnectionInfo("c", "10.0.0.9", listener)
    request = Request(key, version, 1, "tester", body, connection, 0, lambda *_: None)
    answer = module.handle(request, codec.decode(key, version, "request", body), ctx)
    return codec.decode(key, version, "response", codec.encode(key, version, "response", answer))


def describe(ctx, version=1, **fields):
    fields = {"include_cluster_authorized_operations": False, **fields}
    return ask(ctx, describe_cluster, ApiKey.DESCRIBE_CLUSTER, version, **fields)


@pytest.mark.parametrize("version", [0, 1])
def test_a_cluster_is_described_with_its_brokers_and_controller(ctx, version):
    answer = describe(ctx, version)
    assert (answer.error_code.value, answer.error_message) == (Errors.NONE, None)
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 2)
    rows = [(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers]
    assert rows == [(1, "one", 9092, "a"), (2, "two", 9092, None)]
    assert answer.cluster_authorized_operations == NOT_ASKED
    assert codec.get(answer, "endpoint_type", 1) == 1


def test_all_operations_are_authorized_without_an_authorizer(ctx):
    answer = describe(ctx, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == OPERATIONS_OF_A_CLUSTER


def test_a_controller_that_is_not_on_the_listener_is_not_named(ctx):
    ctx.metadata_cache.update(MetadataUpdate(1, list(ctx.metadata_cache.snapshot.brokers.values()), {}, []))
    answer = describe(ctx, listener="INTERNAL")
    assert ([row.broker_id for row in answer.brokers], answer.controller_id) == ([2], -1)


@pytest.mark.parametrize(
    ("endpoint_type", "error"),
    [(2, Errors.MISMATCHED_ENDPOINT_TYPE), (7, Errors.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_controllers_cannot_be_described(ctx, endpoint_type, error):
    answer = describe(ctx, endpoint_type=endpoint_type)
    assert answer.error_code.value == error
    assert answer.error_message
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, ())


def update(ctx, *updates, version=1):
    fields = {"timeout": 1_000, "feature_updates": updates}
    return ask(ctx, update_features, ApiKey.UPDATE_FEATURES, version, **fields)


def feature(name="metadata.version", level=1, upgrade=1):
    return {"feature": name, "max_version_level": level, "upgrade_type": upgrade}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (feature(), "not supported"),
        (feature(name=""), "needs a name"),
        (feature(upgrade=9), "no upgrade type 9"),
        (feature(level=0), "needs a downgrade type"),
        (feature(level=0, upgrade=2), "not there"),
    ],
)
def test_no_feature_is_updated(ctx, asked, reason):
    answer = update(ctx, asked)
    assert answer.error_code.value == Errors.NONE
    (result,) = answer.results
    assert (result.feature, result.error_code.value) == (asked["feature"], Errors.INVALID_REQUEST)
    assert reason in result.error_message


def test_the_first_version_says_otherwise_that_a_feature_may_be_removed(ctx):
    row = {"feature": "f", "max_version_level": 0, "allow_downgrade": True}
    assert "not there" in update(ctx, row, version=0).results[0].error_message


def test_features_are_the_controllers_matter(ctx):
    ctx.controller.is_active = False
    answer = update(ctx, feature())
    assert (answer.error_code.value, answer.results) == (Errors.NOT_CONTROLLER, ())
