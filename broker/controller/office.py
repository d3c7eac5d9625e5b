"""What all parts of one term of office work on."""

from __future__ import annotations

from dataclasses import dataclass

from broker.controller.context import ControllerContext
from broker.controller.request_batch import BrokerRequestBatch
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerStore


@dataclass(frozen=True, slots=True)
class Office:
    """Made by the Term and handed to its parts; on the controller's thread, and gone with the term.

    ``store`` writes what only the controller of this epoch may write, ``cluster`` the rest.
    """

    context: ControllerContext
    store: ControllerStore
    cluster: ClusterStore
    batch: BrokerRequestBatch
