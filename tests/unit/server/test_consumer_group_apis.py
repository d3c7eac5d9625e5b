"""ConsumerGroupDescribe (KIP-848) on the wire, with members of both protocols."""

from __future__ import annotations

import struct

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.server.apis import consumer_group_describe
from tests.support.api_talk import ApiTalk
from tests.support.consumer_group_fakes import ConsumerHarness

#: A ConsumerProtocolSubscription, version 0, to the topic ``t``.
SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


class Context(ApiTalk):
    """A coordinator with a group of a classic member and one of the consumer protocol."""

    def __init__(self, **config: object) -> None:
        self.harness = ConsumerHarness(**config)
        self.group_coordinator = self.harness.coordinator
        super().__init__({ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe}, self.harness.config)
        assert self.harness.enter("consumer").error is Errors.NONE
        self.classic = self.harness.join(protocols=(("range", SUBSCRIPTION),)).result.member_id

    def describe(self, version: int):
        asked = {"group_ids": [self.harness.GROUP], "include_authorized_operations": False}
        (group,) = self.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, version, **asked).groups
        assert group.error_code == Errors.NONE
        return group


def test_members_are_shown_with_their_types_from_version_1_on():
    ctx = Context()
    types = {member.member_id: member.member_type for member in ctx.describe(1).members}
    assert types == {"consumer": 1, ctx.classic: 0}
    assert not hasattr(ctx.describe(0).members[0], "member_type")


def test_a_members_expression_counts_for_the_size_of_an_answer():
    """A few bytes of request never make a large answer."""
    ctx = Context(landline_answer_max_bytes=2_000)
    assert ctx.describe(1).members
    assert ctx.harness.enter("expressive", subscribed_regex=f"t[{'a' * 3_000}]*").error is Errors.NONE
    asked = {"group_ids": [ctx.harness.GROUP], "include_authorized_operations": False}
    (group,) = ctx.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups
    assert (group.error_code, group.members) == (Errors.INVALID_REQUEST, ())


@pytest.mark.parametrize(("version", "types"), [(0, (b"", b"")), (1, (b"\x01", b"\xff"))])
def test_a_members_type_is_a_byte_behind_its_target(version, types):
    """As Kafka 4.1's schema says. A member whose type is not told has -1."""
    nothing = {"topic_partitions": []}
    member = {
        "member_id": "m",
        "member_epoch": 5,
        "client_id": "c",
        "client_host": "h",
        "assignment": nothing,
        "target_assignment": nothing,
    }
    for said, byte in zip(({"member_type": 1}, {}), types, strict=True):
        group = {
            "error_code": 0,
            "group_id": "g",
            "group_state": "",
            "group_epoch": 1,
            "assignment_epoch": 1,
            "assignor_name": "",
            "members": [{**member, **said}],
            "authorized_operations": 0,
        }
        encoded = codec.encode(
            ApiKey.CONSUMER_GROUP_DESCRIBE, version, "response", {"throttle_time": 0, "groups": [group]}
        )
        expected = b"\x02m\0\0" + struct.pack(">i", 5) + b"\x02c\x02h\x01\0" + b"\x01\0\x01\0" + byte + b"\0"
        assert bytes(encoded).endswith(b"\x02" + expected + bytes(4) + b"\0" + b"\0")
