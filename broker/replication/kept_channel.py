"""A channel to one broker that is kept as long as the broker's address stays."""

from __future__ import annotations

from collections.abc import Callable

from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress


class KeptChannel:
    """The channel of one sender. The sender's thread owns it; others may call only :meth:`close`, and
    :meth:`interrupt` for a request under way.
    """

    def __init__(self, make_channel: Callable[[BrokerAddress, str], BrokerChannel], client_id: str) -> None:
        self._make_channel = make_channel
        self._client_id = client_id
        self._channel: BrokerChannel | None = None
        self._address: BrokerAddress | None = None

    def to(self, address: BrokerAddress) -> BrokerChannel:
        """The channel to this address. A channel to another one is closed."""
        if self._channel is None or address != self._address:
            self.close()
            self._channel = self._make_channel(address, self._client_id)
            self._address = address
        return self._channel

    def release(self) -> None:
        """Closes the channel while nothing is to be sent; the next :meth:`to` makes another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def interrupt(self) -> None:
        """Makes a request of the owner that is under way fail."""
        channel = self._channel
        if channel is not None:
            channel.interrupt()

    def close(self) -> None:
        """Closes the channel for good, also under a request of the owner."""
        channel = self._channel
        if channel is not None:
            channel.close()
