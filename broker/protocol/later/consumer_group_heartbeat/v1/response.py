"""ConsumerGroupHeartbeatResponse v1, of Kafka 4.0: the same as version 0."""

from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse

__all__ = ["ConsumerGroupHeartbeatResponse"]
