"""ConsumerGroupHeartbeatResponse v1, of Kafka 4.0: the fields of version 0."""

from dataclasses import dataclass
from typing import ClassVar

from kio.schema.consumer_group_heartbeat.v0 import response as v0
from kio.static.primitive import i16


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse(v0.ConsumerGroupHeartbeatResponse):
    """The fields by Kafka's names, as kio spells them."""

    __version__: ClassVar[i16] = i16(1)
