"""ConsumerGroupDescribeResponse v1, of Kafka 4.1 (KIP-1099): version 0 with the members' types.

kio reads the types of the fields, so they must not be strings: there is no ``from __future__ import annotations``.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.schema.consumer_group_describe.v0 import response as v0
from kio.static.primitive import i8, i16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(v0.Member):
    """A member of a group, and its type: 0 for the classic protocol, 1 for the consumer protocol, -1 if unknown."""

    __version__: ClassVar[i16] = i16(1)
    member_type: i8 = field(metadata={"kafka_type": "int8"}, default=i8(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup(v0.DescribedGroup):
    """The fields by Kafka's names, as kio spells them."""

    __version__: ClassVar[i16] = i16(1)
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeResponse(v0.ConsumerGroupDescribeResponse):
    """The fields by Kafka's names, as kio spells them."""

    __version__: ClassVar[i16] = i16(1)
    groups: tuple[DescribedGroup, ...]
