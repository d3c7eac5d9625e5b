"""Every version that ApiVersions advertises is served: a small valid request to a running broker, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from broker.server.apis.table import ROUTES
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from tests.support.served_world import make_world
from tests.support.valid_answers import CHECKS
from tests.support.valid_requests import ALL_VERSIONS, World, fields, version_id

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

EXTENDED = [f"extended-by-version-{version}" for version in range(4)]
DELETED = [f"deleted-by-version-{version}" for version in range(7)]
CONTROLLER_APIS = [
    (key, version)
    for key, version in ALL_VERSIONS
    if key in {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "offsets.topic.num.partitions": 2,
        "auto.create.topics.enable": "false",
        "group.coordinator.rebalance.protocols": "classic,consumer",
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running


@pytest.fixture(scope="module")
def world(broker: LandlineStandalone) -> World:
    """A topic with a record, topics to extend and to delete, and a group with a committed offset."""
    with RawClient(HOST, broker.port) as client:
        for name in (*EXTENDED, *DELETED):
            answer = client.create_topic(name)
            assert answer.error_code == Errors.NONE, answer
        return make_world(broker, client)


@pytest.fixture
def client(broker: LandlineStandalone) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as raw:
        yield raw


def test_api_versions_advertises_exactly_what_the_table_serves(client: RawClient, world: World) -> None:
    answer = client.ask(ApiKey.API_VERSIONS, 4, fields(ApiKey.API_VERSIONS, 4, world))
    advertised = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert advertised == {key: (APIS[key].min_version, APIS[key].max_version) for key in ROUTES}


@pytest.mark.parametrize("pair", ALL_VERSIONS, ids=version_id)
def test_valid_request_is_answered_in_its_version(
    pair: tuple[ApiKey, int], client: RawClient, world: World
) -> None:
    key, version = pair
    response = client.ask(key, version, fields(key, version, world))
    assert response.__version__ == version
    CHECKS[key](response, version, world)
    assert client.is_open()


def test_the_first_controlled_shutdown_has_no_client_id_before_its_broker(client: RawClient) -> None:
    key_and_version, number, broker_id = bytes.fromhex("00070000"), bytes(4), bytes.fromhex("00001267")
    client.send(bytes((0, 0, 0, 12)) + key_and_version + number + broker_id)
    response = codec.decode(ApiKey.CONTROLLED_SHUTDOWN, 0, "response", client.receive_frame()[4:])
    CHECKS[ApiKey.CONTROLLED_SHUTDOWN](response, 0, World())


@pytest.mark.parametrize("pair", CONTROLLER_APIS, ids=version_id)
def test_word_of_an_earlier_controller_is_refused(
    pair: tuple[ApiKey, int], client: RawClient, world: World
) -> None:
    key, version = pair
    response = client.ask(key, version, fields(key, version, replace(world, controller_epoch=0)))
    assert response.error_code == Errors.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("pair", CONTROLLER_APIS, ids=version_id)
def test_word_to_an_earlier_life_of_the_broker_is_refused(
    pair: tuple[ApiKey, int], client: RawClient, world: World
) -> None:
    key, version = pair
    request = fields(key, version, replace(world, broker_epoch=world.broker_epoch - 1))
    response = client.ask(key, version, request)
    first_with_epoch = {ApiKey.LEADER_AND_ISR: 2, ApiKey.STOP_REPLICA: 1, ApiKey.UPDATE_METADATA: 5}[key]
    stale = version >= first_with_epoch
    assert (response.error_code == Errors.STALE_BROKER_EPOCH) is stale


@pytest.mark.parametrize("version", range(4))
def test_isr_change_by_an_earlier_life_of_the_leader_is_refused(
    version: int, client: RawClient, world: World
) -> None:
    stale = replace(world, broker_epoch=world.broker_epoch - 1)
    response = client.ask(ApiKey.ALTER_PARTITION, version, fields(ApiKey.ALTER_PARTITION, version, stale))
    assert response.error_code == Errors.STALE_BROKER_EPOCH


def test_producer_ids_are_refused_to_an_earlier_life_of_a_broker(client: RawClient, world: World) -> None:
    stale = replace(world, broker_epoch=world.broker_epoch - 1)
    response = client.ask(ApiKey.ALLOCATE_PRODUCER_IDS, 0, fields(ApiKey.ALLOCATE_PRODUCER_IDS, 0, stale))
    assert response.error_code == Errors.STALE_BROKER_EPOCH
