"""Kafka's error for one of the things that a request names, which ZooKeeper did not do. ``refusals`` has the rules."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.api_keys import APIS
from broker.protocol.errors import KafkaError
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import StoreError


def failed(request: Request, of: str, error: StoreError) -> KafkaError:
    """What the client is answered for ``of``. The log tells of it, as :func:`refusal_of` does."""
    return refusal_of(
        error,
        api=APIS[request.api_key].name,
        of=of,
        client_id=request.client_id,
        peer=request.connection.client_address,
    )
