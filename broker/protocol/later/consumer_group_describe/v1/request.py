"""ConsumerGroupDescribeRequest v1, of Kafka 4.1 (KIP-1099): the fields of version 0."""

from dataclasses import dataclass
from typing import ClassVar

from kio.schema.consumer_group_describe.v0 import request as v0
from kio.static.primitive import i16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupDescribeRequest(v0.ConsumerGroupDescribeRequest):
    """The fields by Kafka's names, as kio spells them."""

    __version__: ClassVar[i16] = i16(1)
