"""Metadata: the request of a client with 100 topics, every few minutes, and from all clients at once after
a failover.
"""

from __future__ import annotations

from typing import ClassVar

from bench.guard.stage import Stage, encode
from bench.guard.workloads.workload import Workload, create_topic
from broker.protocol.api_keys import ApiKey


class NamedTopics(Workload):
    """A hundred topics by name."""

    name = "metadata-100"
    api_key: ClassVar = ApiKey.METADATA
    version: ClassVar = 12
    moving_share = 0.3
    per_slice = 10

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        names = [f"{self.name}-{number:03d}" for number in range(100)]
        for name in names:
            create_topic(stage, name, 1)
        fields = {
            "topics": [{"name": name} for name in names],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        self._request = encode(self.api_key, self.version, fields)

    def request(self) -> int:
        return self.stage.exchange(self.client, self._request)
