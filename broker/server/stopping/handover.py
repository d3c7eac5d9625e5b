"""The stopping broker's side of controlled shutdown: the controller first moves its
leaders away (KAFKA-340).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from broker.config.broker_config import BrokerConfig
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.responses import ControlledShutdownResponse
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress, ClusterView
from broker.server.metadata_cache import MetadataCache

_log = structlog.get_logger(__name__)
_VERSION = 3
# A lost controller is replaced within moments: retry soon, but within Kafka's number of retries.
_SOON_S = 0.2


def hand_over_leadership(
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    cluster: MetadataCache,
    make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    *,
    tell: Callable[[str], None],
) -> bool:
    """Sends requests until this broker leads nothing; False if it gives up and stops anyway.

    A broker without live peers stops at once, where Kafka waits for three back-offs.
    """
    if not _is_another_alive(broker_id, cluster):
        return False
    retries = config.int("controlled.shutdown.max.retries")
    backoff_ms = config.int("controlled.shutdown.retry.backoff.ms")
    wait = threading.Event()
    for attempt in range(retries + 1):
        started = time.monotonic()
        left = _ask(broker_id, broker_epoch, cluster, make_channel)
        if left == 0:
            return True
        if not _is_another_alive(broker_id, cluster):
            _log.info("controlled_shutdown_skipped", reason="no other broker is alive")
            return False
        tell(
            f"Controlled shutdown, try {attempt + 1}: {'no answer' if left is None else f'{left} leaders left'}"
        )
        _log.warning("controlled_shutdown_incomplete", attempt=attempt + 1, leaders_left=left)
        if attempt < retries:
            pause = _SOON_S if left is None else backoff_ms / 1000
            wait.wait(max(0.0, pause - (time.monotonic() - started)))
    return False


def _is_another_alive(broker_id: int, cluster: MetadataCache) -> bool:
    return any(alive != broker_id for alive in cluster.alive_broker_ids())


def _ask(
    broker_id: int,
    broker_epoch: int,
    cluster: ClusterView,
    make_channel: Callable[[BrokerAddress, str], BrokerChannel],
) -> int | None:
    """The number of partitions that this broker still leads; None if no controller responded."""
    address = cluster.controller_address()
    if address is None:
        return None
    channel = make_channel(address, f"broker-{broker_id}-controlled-shutdown")
    try:
        fields = {"broker_id": broker_id, "broker_epoch": broker_epoch}
        response: ControlledShutdownResponse = channel.request(ApiKey.CONTROLLED_SHUTDOWN, _VERSION, fields)
    except (ChannelError, ProtocolError) as error:
        _log.warning("controlled_shutdown_not_sent", controller=address.broker_id, reason=str(error))
        return None
    finally:
        channel.close()
    if response.error_code:
        _log.warning("controlled_shutdown_refused", error=Errors(int(response.error_code)).name)
        return None
    return len(response.remaining_partitions)
