"""The objects that all parts of one controller term share."""

from __future__ import annotations

from dataclasses import dataclass

from broker.controller.context import ControllerContext
from broker.controller.request_batch import BrokerRequestBatch
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerStore


@dataclass(frozen=True, slots=True)
class Office:
    """The objects shared by all parts of a term. The Term creates it; it is used on the controller's thread
    and is discarded with the term.

    ``store`` does the writes that require the current controller epoch, ``cluster`` everything else.
    """

    context: ControllerContext
    store: ControllerStore
    cluster: ClusterStore
    batch: BrokerRequestBatch
