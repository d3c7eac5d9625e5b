"""The broker's state and the ways between states: Kafka 0.9's diagram, with Kafka's numbers.

NotRunning → Starting → RunningAsBroker ⇄ RunningAsController
Starting → RecoveringFromUncleanShutdown → RunningAsBroker
RunningAsBroker | RunningAsController → PendingControlledShutdown → BrokerShuttingDown → NotRunning
RunningAsBroker | RunningAsController → BrokerShuttingDown (controlled.shutdown.enable=false)
Starting | RecoveringFromUncleanShutdown → BrokerShuttingDown (stopped while it starts)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import IntEnum

import structlog

_log = structlog.get_logger(__name__)


class BrokerState(IntEnum):
    """The broker's state; the value of the metric ``kafka.server:type=KafkaServer,name=BrokerState``."""

    NotRunning = 0
    Starting = 1
    RecoveringFromUncleanShutdown = 2
    RunningAsBroker = 3
    RunningAsController = 4
    PendingControlledShutdown = 6
    BrokerShuttingDown = 7


_S = BrokerState
TRANSITIONS: Mapping[BrokerState, frozenset[BrokerState]] = {
    _S.NotRunning: frozenset({_S.Starting}),
    _S.Starting: frozenset({_S.RecoveringFromUncleanShutdown, _S.RunningAsBroker, _S.BrokerShuttingDown}),
    _S.RecoveringFromUncleanShutdown: frozenset({_S.RunningAsBroker, _S.BrokerShuttingDown}),
    _S.RunningAsBroker: frozenset(
        {_S.RunningAsController, _S.PendingControlledShutdown, _S.BrokerShuttingDown}
    ),
    _S.RunningAsController: frozenset(
        {_S.RunningAsBroker, _S.PendingControlledShutdown, _S.BrokerShuttingDown}
    ),
    _S.PendingControlledShutdown: frozenset({_S.BrokerShuttingDown}),
    _S.BrokerShuttingDown: frozenset({_S.NotRunning}),
}


class InvalidBrokerTransition(Exception):
    """A transition that the diagram does not have."""


class StateKeeper:
    """Owner of the broker's state.

    A controller election during start-up is remembered, and shown once the broker runs. In Kafka 0.9 the two
    states could overwrite each other.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # lock order 70
        self._state = BrokerState.NotRunning
        self._is_controller = False

    @property
    def state(self) -> BrokerState:
        return self._state

    @property
    def is_running(self) -> bool:
        return self._state in (BrokerState.RunningAsBroker, BrokerState.RunningAsController)

    def move_to(self, state: BrokerState) -> None:
        """Changes the state. Raises :class:`InvalidBrokerTransition`."""
        with self._lock:
            if state not in TRANSITIONS[self._state]:
                raise InvalidBrokerTransition(f"{self._state.name} → {state.name}")
            self._set(state)
            if state is BrokerState.RunningAsBroker and self._is_controller:
                self._set(BrokerState.RunningAsController)

    def set_controller(self, is_controller: bool) -> None:
        """Sets the election's outcome; switches between the two running states."""
        with self._lock:
            self._is_controller = is_controller
            if self._state is BrokerState.RunningAsBroker and is_controller:
                self._set(BrokerState.RunningAsController)
            elif self._state is BrokerState.RunningAsController and not is_controller:
                self._set(BrokerState.RunningAsBroker)

    def _set(self, state: BrokerState) -> None:
        _log.info("broker_state", before=self._state.name, after=state.name)
        self._state = state
