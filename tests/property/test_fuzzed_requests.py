"""Requests mutated at random: the broker answers or hangs up, stays alive, and keeps its memory."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from tests.support.mutated_bytes import edit
from tests.support.valid_requests import ALL_VERSIONS, World, fields, some_records

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = 300
TOPIC = "fuzzed"
# A changed epoch in the controller's requests is a new controller's word, which is to be believed.
CONTROLLERS_WORD = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
# What is made or altered for good when a mutation leaves the request valid is only validated.
CHANGING = {ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS}
CLIENTS = [
    pair for pair in ALL_VERSIONS if pair[0] not in CONTROLLERS_WORD and pair != (ApiKey.CREATE_TOPICS, 0)
]
INTER_BROKER = [pair for pair in ALL_VERSIONS if pair[0] in CONTROLLERS_WORD]


@st.composite
def mutations(draw: st.DrawFn, pairs: list[tuple[ApiKey, int]], world: World) -> bytes:
    """A frame of a valid request with some of its bytes replaced, removed, repeated or put in."""
    key, version = draw(st.sampled_from(pairs))
    message = dict(fields(key, version, world))
    if key in CHANGING:
        message["validate_only"] = True
    frame = bytearray(request_frame(key, version, codec.encode(key, version, "request", message)))[4:]
    edit(draw, frame, 4)
    return struct.pack(">i", len(frame)) + bytes(frame)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {"offsets.topic.num.partitions": 2, "auto.create.topics.enable": "false"}
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        with RawClient(HOST, running.port) as client:
            client.create_topic(TOPIC)
        yield running


def fuzz(broker: LandlineStandalone, frame: bytes) -> None:
    with RawClient(HOST, broker.port) as client:
        client.send(frame)
        client.finish_sending()
        client.await_close()


def never_takes_it_down(
    broker: LandlineStandalone, pairs: list[tuple[ApiKey, int]], serves: Callable[[RawClient], bool]
) -> None:
    """Sends mutations of the requests; after each lot a client that behaves is served."""
    world = World(host=HOST, port=broker.port, topic=TOPIC)
    before = broker.rss_mb()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(frames=st.lists(mutations(pairs, world), min_size=1, max_size=5))
    def never_down(frames: list[bytes]) -> None:
        for frame in frames:
            fuzz(broker, frame)
        with RawClient(HOST, broker.port) as client:
            assert serves(client)

    never_down()
    assert broker.rss_mb() - before < 40
    found = re.findall(r"error=\"[^\"]*\" traceback=.*", broker.log_text())
    assert not found, found[:3]


def test_mutated_requests_of_clients_never_take_the_broker_down(broker: LandlineStandalone) -> None:
    def serves(client: RawClient) -> bool:
        return client.produce(TOPIC, 0, some_records()).error_code == Errors.NONE

    never_takes_it_down(broker, CLIENTS, serves)


def test_mutated_words_of_a_controller_never_take_the_broker_down(broker: LandlineStandalone) -> None:
    never_takes_it_down(broker, INTER_BROKER, RawClient.is_open)
