"""This process's membership in the cluster: the epoch of its registration, and its ZooKeeper session.

:class:`~broker.server.registration.healthcheck.Healthcheck` registers the broker. This module keeps the
result, and ends the sessions of the predecessor and of this process.
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
from broker.zookeeper.connect_string import Secure
from broker.zookeeper.session_end import end_session
from broker.zookeeper.store import Store

_log = structlog.get_logger(__name__)
_REGISTRATION_S: Final = 3.0
_NOBODYS_EPOCH: Final = (1 << 63) - 1
_END_SESSION_S: Final = 2.0
_FIRST_METADATA_S: Final = 10.0


class Membership:
    """Owner of the broker epoch: written by the thread that registers, read by all.

    ``session_file`` stores the session for whoever finds this process dead; None if there are no sessions.
    """

    def __init__(self, session_file: SessionFile | None) -> None:
        self._session_file = session_file
        self._broker_epoch = NO_EPOCH
        self._registered = threading.Event()

    def broker_epoch(self) -> int:
        """The czxid of the registration, -1 before the first one."""
        return self._broker_epoch

    def epoch_of_requests(self) -> int:
        """The lowest broker epoch that the controller's requests may carry.

        Before this process has registered, they are meant for its dead predecessor. To become leader because
        of them would mean leading with a log that a crash may have cut. The first requests for this process
        may arrive while it registers.
        """
        return self._broker_epoch if self._registered.wait(_REGISTRATION_S) else _NOBODYS_EPOCH

    def note_registration(self, broker_epoch: int) -> None:
        """Records a registration, the first or a later one."""
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
        """The Healthcheck that registers this process, not started. ``on_registered`` receives the epoch
        before requests may carry it.
        """

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
        """The reasons why clients do not find this broker; empty if they do."""
        if self._broker_epoch < 0:
            return ["not registered in ZooKeeper"]
        if not cache.alive(broker_id):
            return ["the controller does not count this broker among the living"]
        return []

    def end_predecessors_session(self, secure: Secure | None) -> None:
        """Ends the session that a dead predecessor left in the session file, so that its partitions need not
        wait for our recovery. The caller holds the locks of the log directories, so the noted session belongs
        to a dead process. Needed when `landline deregister` could not run, for example after a power loss.
        """
        note = None if self._session_file is None else self._session_file.read()
        if note is None:
            return
        outcome = end_session(note.session, _END_SESSION_S, secure)
        _log.info("predecessors_session_ended", session=str(note.session), outcome=outcome.value)

    def close(self, store: Store) -> None:
        """Ends the session, and deletes its note if the session ended cleanly."""
        session_id = store.session_id if store.state_name == "CONNECTED" else 0
        store.close()
        if session_id and self._session_file is not None:
            try:
                self._session_file.clear(session_id)
            except OSError as error:  # a failed disk: a reader of the note finds the session ended
                _log.warning("session_note_not_removed", file=str(self._session_file.path), reason=str(error))


def await_first_metadata(cache: MetadataCache, broker_id: int, cancel: threading.Event) -> None:
    """Waits until the controller's metadata contains this broker, so that clients find it. Without a
    controller, the broker is ready after a time-out.
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
