"""What a cluster is asked to bring about, and what is said when it changed meanwhile."""

from types import SimpleNamespace

import pytest

from broker.replication.cluster_view import BrokerAddress
from broker.server.cluster_requests import AdminError, ClusterRequests
from broker.server.desired.admin import Admin
from broker.server.desired.plan import AlterEntity


class Channel:
    """To a broker whose cluster has only broker 1."""

    def request(self, _api_key, _version, _fields):
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=1, host="h1", port=9091)], controller_id=1)

    def close(self):
        pass


def test_a_broker_that_has_left_since_the_plan_was_made_is_named():
    step = AlterEntity("broker", "3", {"log.cleaner.backoff.ms": (None, "15000")})
    with (
        Admin(ClusterRequests(BrokerAddress(1, "h1", 9091), lambda _address: Channel(), print)) as admin,
        pytest.raises(AdminError, match="broker 3 has left the cluster"),
    ):
        admin.take([step], validate_only=False)
