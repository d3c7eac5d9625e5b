"""A Metadata request with the bytes of an earlier one is answered before it is decoded, while nothing changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.properties import Properties
from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.server.apis import metadata
from tests.support.api_talk import ApiTalk
from tests.support.contexts import context_of

VERSION = 12


class Context(ApiTalk):
    """Of ApiContext what Metadata uses. ``is_word_awaited``: a leader is gone, and the controller's word is due."""

    def __init__(self) -> None:
        super().__init__(
            {ApiKey.METADATA: metadata},
            BrokerConfig.from_properties(Properties(), [("landline.standalone", "true")]),
        )
        self.cluster_id = "cluster"
        self.is_word_awaited = False
        self.gone_brokers = SimpleNamespace(is_word_awaited=lambda: self.is_word_awaited)
        self.auto_topics.enabled = False

    def request(self, *names: str, listener: str = "PLAINTEXT") -> Request:
        topics = [{"topic_id": None, "name": name} for name in names]
        fields = {"topics": topics, "include_topic_authorized_operations": False}
        body = memoryview(codec.encode(ApiKey.METADATA, VERSION, "request", fields))
        connection = ConnectionInfo("c", "10.0.0.9", listener)
        return Request(ApiKey.METADATA, VERSION, 1, "tester", body, connection, 0, lambda *_: None)

    def serve(self, request: Request) -> bytes:
        """The body of the response."""
        metadata.handle(
            request, codec.decode(ApiKey.METADATA, VERSION, "request", request.body), context_of(self)
        )
        assert request.payload is not None
        return b"".join(bytes(piece) for piece in request.payload)[9:]  # behind length, id and tags

    def recall(self, request: Request) -> bytes | None:
        return metadata.recall(request, context_of(self))


@pytest.fixture
def ctx() -> Context:
    return Context()


def test_the_same_bytes_get_the_same_body(ctx: Context) -> None:
    assert ctx.recall(ctx.request("t")) is None
    body = ctx.serve(ctx.request("t"))
    assert ctx.recall(ctx.request("t")) == body
    (topic,) = codec.decode(ApiKey.METADATA, VERSION, "response", body).topics
    assert (topic.name, len(topic.partitions)) == ("t", 2)


def test_nothing_is_recalled_for_other_bytes_or_another_listener(ctx: Context) -> None:
    ctx.serve(ctx.request("t"))
    assert ctx.recall(ctx.request("u")) is None
    assert ctx.recall(ctx.request("t", listener="SSL")) is None


def test_nothing_is_recalled_once_the_clusters_state_has_changed(ctx: Context) -> None:
    ctx.serve(ctx.request("t"))
    ctx.know("t", 3)
    assert ctx.recall(ctx.request("t")) is None


def test_nothing_is_recalled_while_the_controllers_word_is_awaited(ctx: Context) -> None:
    ctx.serve(ctx.request("t"))
    ctx.is_word_awaited = True
    assert ctx.recall(ctx.request("t")) is None


def test_an_unknown_topic_is_looked_for_each_time(ctx: Context) -> None:
    ctx.serve(ctx.request("t", "none"))
    assert ctx.recall(ctx.request("t", "none")) is None


def test_the_bytes_of_a_large_request_are_not_kept(ctx: Context) -> None:
    """One name again and again: the body is as that of a small request, and may be kept by its name."""
    large = ctx.request(*["t"] * 1_000)
    assert len(large.body) > 16 * 1024
    ctx.serve(large)
    assert ctx.recall(ctx.request(*["t"] * 1_000)) is None
    ctx.serve(ctx.request(*["t"] * 700))
    assert ctx.recall(ctx.request(*["t"] * 700)) is not None


def test_nothing_is_recalled_where_principals_may_see_different_topics(ctx: Context) -> None:
    ctx.serve(ctx.request("t"))
    access: Any = object()
    ctx.access = access
    assert ctx.recall(ctx.request("t")) is None


def test_a_topic_with_neither_name_nor_id_has_all_of_its_request_refused(ctx: Context) -> None:
    topics = [{"topic_id": None, "name": name} for name in ("t", None)]
    answer = ctx.answer(ApiKey.METADATA, VERSION, topics=topics, include_topic_authorized_operations=False)
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [
        (Errors.INVALID_REQUEST, "t"),
        (Errors.INVALID_REQUEST, ""),
    ]
    assert not answer.brokers
