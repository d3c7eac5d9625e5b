"""The content of a broker under test: what the requests of :mod:`tests.support.valid_requests` name."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import replace

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.valid_requests import World, fields, some_records


def make_world(broker: LandlineStandalone, client: RawClient) -> World:
    """A topic with a record, and a group with a committed offset."""
    with urllib.request.urlopen(f"{broker.http_url}/status") as answer:
        epoch = json.load(answer)["broker_epoch"]
    world = World(broker_epoch=epoch, host=HOST, port=broker.port)
    made = client.create_topic(world.topic)
    assert made.error_code == Errors.NONE, made
    world = replace(world, topic_id=made.topic_id)
    assert client.produce(world.topic, 0, some_records(b"first")).error_code == Errors.NONE
    wait_until(lambda: _commit(client, world) == Errors.NONE, what="the group's coordinator serves")
    return world


def _commit(client: RawClient, world: World) -> int:
    client.ask(ApiKey.FIND_COORDINATOR, 2, fields(ApiKey.FIND_COORDINATOR, 2, world))
    answer = client.ask(ApiKey.OFFSET_COMMIT, 7, fields(ApiKey.OFFSET_COMMIT, 7, world))
    return int(answer.topics[0].partitions[0].error_code)
