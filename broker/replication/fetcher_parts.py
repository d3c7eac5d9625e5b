"""The parts and settings of a follower's fetcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.network.guests import Guest
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

# Has a Processor serve a guest; False if none can.
Invite = Callable[[Guest], bool]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    """The limits and waiting times of a fetcher: ``replica.fetch.*``, in milliseconds and bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 1024 * 1024
    response_max_bytes: int = 10 * 1024 * 1024
    backoff_ms: int = 1000


def _nobody_invites(_guest: Guest) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherParts:
    """The collaborators and settings of a ReplicaFetcher."""

    #: The thread's name, also used in log lines and as the client id that the leader sees.
    name: str
    broker_id: int
    #: Called for each request, because it changes with the registration.
    broker_epoch: Callable[[], int]
    #: The leader's address, read at every connect because it can change; None while unknown.
    address: Callable[[], BrokerAddress | None]
    make_channel: Callable[[BrokerAddress, str], BrokerChannel]
    settings: FetcherSettings
    clock: Clock
    #: Called after each append, with no lock held.
    on_appended: Callable[[TopicPartition], None]
    #: Called when the leader answers again.
    on_reached: Callable[[], None]
    #: Called when the leader's port refuses the connection.
    on_refused: Callable[[], None]
    invite: Invite = _nobody_invites
    #: follower.replication.throttled.rate; None throttles nothing.
    quota: ReplicationQuota | None = None
