"""The controller's senders go on until a broker has answered, whatever goes wrong on the way."""

from __future__ import annotations

import pytest

from broker.config.endpoint import Endpoint
from broker.controller.channel_manager import ChannelManager
from broker.protocol.api_keys import ApiKey
from broker.protocol.one_body import OneBody
from broker.replication.broker_channel import ChannelError
from broker.zookeeper.znodes import BrokerRegistration, LiveBroker
from rig.wait import wait_until


class FailingChannel:
    """Raises what it is given, one a request, then answers with the request's fields."""

    def __init__(self, errors):
        self.errors = list(errors)

    def request(self, _api_key, _version, fields):
        if self.errors:
            raise self.errors.pop(0)
        return fields

    def close(self):
        pass


@pytest.mark.parametrize(
    "error", [ChannelError("closed"), KeyError("a bug"), RuntimeError("another")], ids=repr
)
def test_request_is_sent_again_until_it_is_answered(error) -> None:
    channel = FailingChannel([error, error])
    manager = ChannelManager(1, "PLAINTEXT", lambda _address, _client_id: channel)
    manager.add(LiveBroker(BrokerRegistration(2, (Endpoint("h", 9092, "PLAINTEXT"),)), epoch=7))
    answers = []
    try:
        for number in (1, 2):
            manager.send(
                2, ApiKey.UPDATE_METADATA, 8, OneBody({"number": number}, "broker_epoch"), answers.append
            )
        wait_until(lambda: len(answers) == 2)
    finally:
        manager.shutdown()
    assert answers == [{"number": 1, "broker_epoch": 7}, {"number": 2, "broker_epoch": 7}]
