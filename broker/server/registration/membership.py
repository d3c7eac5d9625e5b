"""This process's place in the cluster: the epoch of its registration, and the ZooKeeper session that it hangs on.

:class:`~broker.server.registration.healthcheck.Healthcheck` registers; here stands what came of it, and how the
sessions before and after are ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.settings import ELIGIBLE_REPLICAS
from broker.protocol.epochs import NO_EPOCH
from broker.server.metadata_cache import MetadataCache
from broker.server.registration.healthcheck import Healthcheck
from broker.server.registration.session_file import SessionFile
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.session_end import end_session
from broker.zookeeper.store import Store

_log = structlog.get_logger(__name__)
_REGISTRATION_S: Final = 3.0
_NOBODYS_EPOCH: Final = (1 << 63) - 1
_END_SESSION_S: Final = 2.0
_FIRST_METADATA_S: Final = 10.0


class Membership:
    """Owner of the broker epoch: written by whichever thread registers, read by all.

    ``session_file`` notes the session for whoever finds this process dead; None where there are no sessions.
    """

    def __init__(self, session_file: SessionFile | None) -> None:
        self._session_file = session_file
        self._broker_epoch = NO_EPOCH
        self._registered = threading.Event()

    def broker_epoch(self) -> int:
        """The registration's czxid, -1 before the first."""
        return self._broker_epoch

    def epoch_of_requests(self) -> int:
        """The least broker epoch that the controller's requests may carry.

        Before this process has registered they are meant for its dead predecessor: to become a leader by them would
        be to lead with what a crash has left of the log. The first that are ours may come while we register.
        """
        return self._broker_epoch if self._registered.wait(_REGISTRATION_S) else _NOBODYS_EPOCH

    def note_registration(self, broker_epoch: int) -> None:
        """This process has registered, for the first time or anew."""
        self._broker_epoch = broker_epoch
        self._registered.set()

    def make_healthcheck(
        self,
        config: BrokerConfig,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        store: ClusterStore,
        *,
        on_registered: Callable[[int], None],
        cancel: threading.Event,
    ) -> Healthcheck:
        """What registers this process; not started. ``on_registered`` hears the epoch before requests may carry it."""

        def note(broker_epoch: int) -> None:
            on_registered(broker_epoch)
            self.note_registration(broker_epoch)

        return Healthcheck(
            store,
            broker_id,
            endpoints,
            config.opt_str("broker.rack"),
            on_registered=note,
            session_timeout_ms=config.int("zookeeper.session.timeout.ms"),
            cancel=cancel,
            session_file=self._session_file,
            tells_first_epoch=config.bool(ELIGIBLE_REPLICAS),
            speaks_by=config.inter_broker_listener_name if len(config.listeners) > 1 else None,
        )

    def doubts(self, cache: MetadataCache, broker_id: int) -> list[str]:
        """Why this process is not among the members that clients find; empty when it is."""
        if self._broker_epoch < 0:
            return ["not registered in ZooKeeper"]
        if not cache.alive(broker_id):
            return ["the controller does not count this broker among the living"]
        return []

    def end_predecessors_session(self) -> None:
        """For who holds the locks of the log directories: a session that is still noted is then a dead process's, and
        its partitions must not wait for our recovery. Where `landline deregister` could not run, as after a loss of
        power.
        """
        note = None if self._session_file is None else self._session_file.read()
        if note is None:
            return
        outcome = end_session(note.session, _END_SESSION_S)
        _log.info("predecessors_session_ended", session=str(note.session), outcome=outcome.value)

    def close(self, store: Store) -> None:
        """Ends the session, and with it the need to have it ended."""
        session_id = store.session_id if store.state_name == "CONNECTED" else 0
        store.close()
        if session_id and self._session_file is not None:
            try:
                self._session_file.clear(session_id)
            except OSError as error:  # a failed disk: whoever reads the note finds the session ended
                _log.warning("session_note_not_removed", file=str(self._session_file.path), reason=str(error))


def await_first_metadata(cache: MetadataCache, broker_id: int, cancel: threading.Event) -> None:
    """Waits until the controller has told this broker of itself: from then on clients find it. Where there is no
    controller for a while, the broker is ready without.
    """
    known = threading.Event()

    def check() -> None:
        if cache.alive(broker_id) or cancel.is_set():
            known.set()

    cache.add_listener(check)
    check()
    if not known.wait(_FIRST_METADATA_S):
        _log.warning("no_metadata_yet", waited_s=_FIRST_METADATA_S, action="is there a controller?")
    cache.remove_listener(check)
