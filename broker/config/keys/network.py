"""Listeners, connections and the threads that serve them."""

from __future__ import annotations

from typing import Final

from broker.config.key import (
    CLUSTER_WIDE,
    HIGH,
    INT,
    INT_MAX,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    PER_BROKER,
    REFUSED,
    STRING,
    USED,
    Key,
)
from broker.config.validators import at_least, one_of

# fmt: off
KEYS: Final = (
    Key("listeners", STRING, "PLAINTEXT://:9092", HIGH, mode=PER_BROKER, use=USED,
        doc="Where this broker listens: `NAME://host:port`, comma separated. An empty host binds every "
            "interface, port 0 takes a free one. Only PLAINTEXT listeners are served for now."),
    Key("advertised.listeners", STRING, None, HIGH, mode=PER_BROKER, use=USED,
        doc="The addresses given to clients and to the other brokers; the listeners themselves when unset. "
            "Must be reachable from where the clients are: 0.0.0.0 is refused."),
    Key("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW,
        mode=PER_BROKER, use=USED,
        doc="Which security protocol each listener name speaks, as `NAME:PROTOCOL` pairs."),
    Key("inter.broker.listener.name", STRING, None, MEDIUM, use=USED,
        doc="The listener that the brokers use among themselves. Not together with "
            "security.inter.broker.protocol."),
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM,
        valid=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), use=USED,
        doc="The protocol brokers use among themselves; its listener is found by that name."),
    Key("control.plane.listener.name", STRING, None, HIGH, use=REFUSED,
        doc="A listener of its own for the controller's requests. Refused when set: they come by the inter-broker "
            "listener."),
    Key("early.start.listeners", STRING, None, HIGH,
        doc="Listeners that open before the authorizer is ready."),
    Key("num.network.threads", INT, 1, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="Processors: threads that read requests, run the quick ones to their end and write answers. "
            "Kafka's default is 3; here each more thread only adds hand-offs within one Python process, so it"
            " is 1. Use more brokers per host for more cores."),
    Key("num.io.threads", INT, 8, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="Handler threads for the requests that may block: topic and config administration, controller "
            "requests, cold reads."),
    Key("queued.max.requests", INT, 500, HIGH, valid=at_least(1), use=USED,
        doc="How many requests may wait for a handler thread before the processors stop reading."),
    Key("queued.max.request.bytes", LONG, -1, MEDIUM, use=USED,
        doc="Bytes of requests that have come in part or wait for a handler, over all connections but those of the "
            "brokers' own listener where it is not the only one; above it no more is read of large ones; -1 is no "
            "limit. One goes on to its end even then, while those that wait take less than all of it, so that it is "
            "passed by as much again and socket.request.max.bytes at most; what is not whole after 30 s is closed "
            "while memory is short. Without it a connection can hold socket.request.max.bytes twice."),
    Key("socket.send.buffer.bytes", INT, -1, HIGH, use=USED,
        doc="SO_SNDBUF of the broker's sockets; -1 lets the system size it by what each reader takes. Kafka's "
            "default is 102400, which makes a reader of large answers wait for each 100 KiB (ADR 15)."),
    Key("socket.receive.buffer.bytes", INT, -1, HIGH, use=USED,
        doc="SO_RCVBUF of the broker's sockets; -1 lets the system size it by what each sender brings. Kafka's "
            "default is 102400 (ADR 15)."),
    Key("socket.request.max.bytes", INT, 104_857_600, HIGH, valid=at_least(1), use=USED,
        doc="The largest request accepted; a longer one closes the connection before anything is allocated "
            "for it."),
    Key("socket.listen.backlog.size", INT, 50, MEDIUM, valid=at_least(1), use=USED,
        doc="How many connections the kernel may hold before they are accepted."),
    Key("socket.connection.setup.timeout.ms", LONG, 10000, MEDIUM,
        doc="How long the broker's own clients wait for a TCP connection at first."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30000, MEDIUM,
        doc="The upper bound that the connection set-up time-out backs off to."),
    Key("max.connections", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="How many connections one broker has at a time. More are accepted when others have gone; on the brokers' "
            "own listener, where it is not the only one, at once: the least used of the others are closed for them. "
            "0 needs such a listener."),
    Key("max.connections.per.ip", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="How many connections one client address may hold."),
    Key("max.connections.per.ip.overrides", STRING, "", MEDIUM, mode=CLUSTER_WIDE, use=USED,
        doc="Exceptions to max.connections.per.ip, as `address:count` pairs."),
    Key("max.connection.creation.rate", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED,
        doc="New connections per second, over all listeners but the brokers' own where it is not the only one; more "
            "are served later, in turns by address. Of one address 512 wait on each listener, others are closed."),
    Key("connections.max.idle.ms", LONG, 600_000, MEDIUM, use=USED,
        doc="A connection silent for this long is closed. One line in the log for all of a second."),
    Key("connections.max.reauth.ms", LONG, 0, MEDIUM,
        doc="How long a SASL session lives before the client must authenticate again; 0 for ever."),
    Key("connection.failed.authentication.delay.ms", INT, 100, LOW, valid=at_least(0),
        doc="How long the answer to a failed authentication is held back."),
    Key("request.timeout.ms", INT, 30000, HIGH,
        doc="How long the broker's own client requests wait. Here controller.socket.timeout.ms and "
            "replica.socket.timeout.ms say it."),
    Key("background.threads", INT, 10, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="Threads of the scheduler that runs retention, checkpoints and other periodic tasks."),
    Key("max.request.partition.size.limit", INT, 2000, MEDIUM, valid=at_least(1),
        doc="How many partitions one DescribeTopicPartitions answer may carry."),
    Key("server.max.startup.time.ms", LONG, LONG_MAX, MEDIUM, valid=at_least(0),
        doc="How long start-up may take. systemd's TimeoutStartSec does that here."),
)
# fmt: on
