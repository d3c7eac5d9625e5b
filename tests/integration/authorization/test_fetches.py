"""A fetch after the right to read has ended: in a session, and while it waits."""

from __future__ import annotations

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.broker_metrics import waiting_fetches
from tests.support.guarded_broker import TOPIC, GuardedBroker, Op, granted
from tests.support.valid_requests import World, fields, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_a_fetch_session_ends_at_the_next_fetch_after_its_right_did(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
    first = {**fields(ApiKey.FETCH, 12, world), "session_id": 0, "session_epoch": 0}
    first["topics"] = [{"topic": world.topic, "partitions": [wanted]}]
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        answer = guest.ask(ApiKey.FETCH, 12, first)
        assert answer.responses[0].partitions[0].error_code == Errors.NONE
        assert answer.session_id
    following = {**first, "topics": [], "session_id": answer.session_id, "session_epoch": 1}
    answer = guest.ask(ApiKey.FETCH, 12, following)
    assert answer.responses[0].partitions[0].error_code == Errors.TOPIC_AUTHORIZATION_FAILED
    assert not answer.responses[0].partitions[0].records


def test_a_fetch_that_waits_gets_nothing_that_was_written_after_its_right_ended(
    broker: GuardedBroker, admin: RawClient, guest: RawClient, world: World
) -> None:
    partition = {
        "partition": 0,
        "fetch_offset": admin.end_offset(world.topic),
        "partition_max_bytes": 1 << 20,
    }
    asked = {
        **fields(ApiKey.FETCH, 12, world),
        "max_wait": 2_500,
        "min_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": world.topic, "partitions": [partition]}],
    }
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        body = codec.encode(ApiKey.FETCH, 12, "request", asked)
        guest.send(request_frame(ApiKey.FETCH, 12, body))
        wait_until(lambda: waiting_fetches(broker) == 1, what="the fetch waits")
    assert admin.produce(world.topic, 0, some_records(b"later")).error_code == Errors.NONE
    frame = memoryview(guest.receive_frame())
    assert b"later" not in bytes(frame)
    offset = response_body_offset(ApiKey.FETCH, 12, frame)
    answer = codec.decode(ApiKey.FETCH, 12, "response", frame[offset:])
    assert answer.responses[0].partitions[0].error_code == Errors.TOPIC_AUTHORIZATION_FAILED
