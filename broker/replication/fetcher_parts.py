"""What a follower's fetcher is made of and set to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.network.guests import Guest
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

# Has a Processor serve a guest; False when none can.
Invite = Callable[[Guest], bool]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """What a fetcher asks for at most, and how long it waits: ``replica.fetch.*``, in milliseconds and bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


def _nobody_invites(_guest: Guest) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherParts:
    """What a ReplicaFetcher works with."""

    #: Of the thread, in the log, and the client id that the leader sees.
    name: str
    broker_id: int
    #: Asked at each request: it changes with the registration.
    broker_epoch: Callable[[], int]
    #: Where the leader is, asked at every connect, for leaders move; None while nobody knows.
    address: Callable[[], BrokerAddress | None]
    make_channel: Callable[[BrokerAddress, str], BrokerChannel]
    settings: FetcherSettings
    clock: Clock
    #: After each append, with nothing locked.
    on_appended: Callable[[TopicPartition], None]
    #: The leader answers again.
    on_reached: Callable[[], None]
    #: Nobody listens at the leader's port.
    on_refused: Callable[[], None]
    invite: Invite = _nobody_invites
    #: follower.replication.throttled.rate; without one nothing is throttled.
    quota: ReplicationQuota | None = None
