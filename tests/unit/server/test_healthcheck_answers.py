"""A broker whose session has ended registers again, whichever of the store's answers fails meanwhile."""

from __future__ import annotations

import pytest

from broker.config.endpoint import Endpoint
from broker.server.registration.healthcheck import Healthcheck
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from rig.wait import wait_until
from tests.support.faulty_store import Fault, Faults, FaultySession


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("length", [1, 3])
def test_a_registration_is_tried_until_it_is_answered(
    fault: Fault, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.registration.healthcheck.RETRY_S", 0.01)
    monkeypatch.setattr("broker.server.registration.healthcheck.CONFLICT_POLL_S", 0.01)
    embedded = EmbeddedStore()
    embedded.connect()
    observer = ClusterStore(FaultySession(embedded, {}, Faults()))
    observer.create_top_level_paths()
    owners: dict[str, int] = {}
    for nth in range(1, 5):
        session = FaultySession(embedded, owners, Faults())
        epochs: list[int] = []
        health = Healthcheck(
            ClusterStore(session),
            1,
            (Endpoint("h", 9092, "PLAINTEXT"),),
            None,
            on_registered=epochs.append,
            session_timeout_ms=1000,
        )
        health.startup()
        session._faults = Faults(nth, fault, length)
        session.expire()
        wait_until(
            lambda e=epochs: len(e) == 2, what=lambda n=nth: f"registered again, fault at operation {n}"
        )
        live = observer.broker(1)
        assert live is not None
        assert live.epoch == epochs[-1]
        assert owners["/brokers/ids/1"] == session.session_id
        session._faults = Faults()
        health.shutdown()
