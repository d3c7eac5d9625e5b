"""A broker whose session has ended registers again, whichever of the store's answers fails meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.endpoint import Endpoint
from broker.server.registration.healthcheck import BrokerIdInUseError, Healthcheck
from broker.server.registration.session_file import SessionFile
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.session_end import Session
from broker.zookeeper.znodes import BrokerRegistration, encode_broker
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


ENDPOINTS = (Endpoint("h", 9092, "PLAINTEXT"),)


class LateSession(FaultySession):
    """A session that begins only with what it is asked first, as while the connection is away after an expiry."""

    def __init__(self, embedded: EmbeddedStore, owners: dict[str, int]) -> None:
        super().__init__(embedded, owners, Faults())
        self._begun, self.session_id = self.session_id, 0

    def begin(self) -> None:
        self.session_id = self._begun
        self.session = Session("zk:2181", self._begun, b"secret")

    def multi_many(self, batches):
        self.begin()
        return super().multi_many(batches)


@pytest.fixture
def embedded() -> EmbeddedStore:
    made = EmbeddedStore()
    made.connect()
    ClusterStore(FaultySession(made, {}, Faults())).create_top_level_paths()
    return made


def healthcheck_of(session: FaultySession, file: SessionFile | None = None) -> Healthcheck:
    return Healthcheck(
        ClusterStore(session),
        1,
        ENDPOINTS,
        None,
        on_registered=lambda _epoch: None,
        session_timeout_ms=-2_000,
        session_file=file,
    )


def test_the_session_that_registered_is_noted_even_if_it_began_only_then(
    embedded: EmbeddedStore, tmp_path: Path
) -> None:
    """Its znode is replaced after it has expired, and its failover waits for no time-out."""
    owners: dict[str, int] = {}
    session, file = LateSession(embedded, owners), SessionFile(tmp_path)
    health = healthcheck_of(session, file)
    health.startup()
    note = file.read()
    assert note is not None
    assert note.session == session.session
    session.session_id = next(FaultySession._ids)  # the expired one's znode is still there
    health._register()
    assert owners["/brokers/ids/1"] == session.session_id
    health.shutdown()


def test_a_registration_that_no_session_owns_is_not_ours(embedded: EmbeddedStore) -> None:
    """Without a session, its id is 0, and so is the owner of a znode that somebody made by hand."""
    registration = BrokerRegistration(1, ENDPOINTS)
    embedded.create("/brokers/ids/1", encode_broker(registration))
    with pytest.raises(BrokerIdInUseError):
        healthcheck_of(LateSession(embedded, {})).startup()
    assert embedded.exists("/brokers/ids/1") is not None
