"""The request handler threads of a broker: one pool for each kind of work, so that no kind delays another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.network.request_channel import RequestChannel
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.request_handler_pool import RequestHandlerPool

_ASKERS: Final = 2  # one request for topics and one for producer ids at a time
_BROKER_HANDLERS: Final = 4
_OF_BROKERS: Final = 500  # requests that may wait for these handlers
_STRANGERS: Final = 64  # requests of at most 64 KiB


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handler pools of one broker, made by :func:`start_handlers`. Their threads start when work arrives."""

    #: Client requests that may block.
    clients: RequestHandlerPool
    #: One handler for client requests that wait for ZooKeeper many times.
    long: RequestHandlerPool
    #: Reserved for requests of other brokers and the controller.
    brokers: RequestHandlerPool
    #: They send requests to the controller, which may be this broker.
    askers: RequestHandlerPool
    #: Looks up unknown peers that send brokers' requests, one at a time.
    introducer: RequestHandlerPool


def start_handlers(config: BrokerConfig, steps: StartupSteps) -> Handlers:
    """Creates the pools. ``steps`` stop them in reverse order."""

    def start(undo_name: str, queued: int, threads: int, thread_name: str) -> RequestHandlerPool:
        pool = RequestHandlerPool(RequestChannel(queued), threads, thread_name)
        steps.undo_by(undo_name, pool.shutdown)
        return pool

    queued = config.int("queued.max.requests")
    return Handlers(
        clients=start("RequestHandlerPool", queued, config.int("num.io.threads"), "request-handler"),
        long=start("LongRequestHandler", queued, 1, "long-request-handler"),
        brokers=start("BrokerRequestHandlerPool", _OF_BROKERS, _BROKER_HANDLERS, "broker-request-handler"),
        askers=start("ControllerAskers", _ASKERS, _ASKERS, "controller-asker"),
        introducer=start("PeerLookUp", _STRANGERS, 1, "peer-look-up"),
    )
