"""Listeners, connections, and the threads that serve them."""

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
    STRING,
    USED,
    Key,
)
from broker.config.validators import at_least, one_of

# fmt: off
KEYS: Final = (
    Key("listeners", STRING, "PLAINTEXT://:9092", HIGH, mode=PER_BROKER, use=USED,
        doc="The addresses on which this broker listens: `NAME://host:port`, separated by commas. An "
            "empty host binds every interface, port 0 takes a free port. NAME is in "
            "listener.security.protocol.map, which gives its protocol."),
    Key("advertised.listeners", STRING, None, HIGH, mode=PER_BROKER, use=USED,
        doc="The addresses given to clients and to other brokers; if unset, the listeners themselves. They "
            "must be reachable from the clients: 0.0.0.0 is refused."),
    Key("listener.security.protocol.map", STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", LOW,
        mode=PER_BROKER, use=USED,
        doc="The security protocol of each listener name, as `NAME:PROTOCOL` pairs."),
    Key("inter.broker.listener.name", STRING, None, MEDIUM, use=USED,
        doc="The listener that brokers use among themselves. Cannot be combined "
            "with security.inter.broker.protocol."),
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT", MEDIUM,
        valid=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), use=USED,
        doc="The protocol that brokers use among themselves; the listener with this name is used."),
    Key("control.plane.listener.name", STRING, None, HIGH, use=USED,
        doc="The listener by which the controller sends brokers its requests. If unset, it is the "
            "inter-broker listener. All brokers must have it in listeners before one has it here."),
    Key("early.start.listeners", STRING, None, HIGH,
        doc="Listeners that open before the authorizer is ready."),
    Key("num.network.threads", INT, 1, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED, restart=True,
        doc="Processors: threads that read requests, handle the fast ones themselves, and write answers. "
            "Kafka's default is 3. Here it is 1, because more threads only add hand-offs within one Python "
            "process. To use more cores, run more brokers per host."),
    Key("num.io.threads", INT, 8, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="Handler threads for requests that may block: topic and config administration, controller "
            "requests, cold reads."),
    Key("queued.max.requests", INT, 500, HIGH, valid=at_least(1), use=USED,
        doc="How many requests may wait for a handler thread before the processors stop reading."),
    Key("queued.max.request.bytes", LONG, -1, MEDIUM, use=USED,
        doc="Memory for requests that are partly received or wait for a handler, over all connections; "
            "connections on the inter-broker listener do not count if there are other listeners. -1 means "
            "no limit. Above it large requests are read no further, except one at a time while waiting "
            "requests take less than the limit. So it is exceeded by at most the same amount again plus "
            "socket.request.max.bytes. While memory is short, a connection whose request is incomplete "
            "after 30 s is closed. Without a limit one connection can hold twice socket.request.max.bytes."),
    Key("socket.send.buffer.bytes", INT, -1, HIGH, use=USED,
        doc="SO_SNDBUF of the broker's sockets. -1 lets the system size it by what each reader takes. With "
            "Kafka's default, 102400, a reader of large answers waits for each 100 KiB (ADR 15)."),
    Key("socket.receive.buffer.bytes", INT, -1, HIGH, use=USED,
        doc="SO_RCVBUF of the broker's sockets. -1 lets the system size it by what each sender sends. "
            "Kafka's default is 102400 (ADR 15)."),
    Key("socket.request.max.bytes", INT, 104_857_600, HIGH, valid=at_least(1), use=USED,
        doc="The largest request accepted. A larger one closes the connection before any memory is "
            "allocated for it."),
    Key("socket.listen.backlog.size", INT, 50, MEDIUM, valid=at_least(1), use=USED,
        doc="How many connections the kernel holds before they are accepted."),
    Key("socket.connection.setup.timeout.ms", LONG, 10000, MEDIUM,
        doc="How long the broker's own clients first wait for a TCP connection."),
    Key("socket.connection.setup.timeout.max.ms", LONG, 30000, MEDIUM,
        doc="The upper limit to which the connection setup timeout backs off."),
    Key("max.connections", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="The most connections that one broker has at a time. Further ones are accepted when others "
            "have closed. On the inter-broker listener, if there are other listeners, they are accepted "
            "at once, and the least used connections of the others are closed for them. 0 requires such "
            "a listener. listener.name.<listener>.max.connections limits one listener in addition, also the "
            "inter-broker one."),
    Key("max.connections.per.ip", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE, use=USED,
        doc="The most connections from one client address."),
    Key("max.connections.per.ip.overrides", STRING, "", MEDIUM, mode=CLUSTER_WIDE, use=USED,
        doc="Exceptions to max.connections.per.ip, as `address:count` pairs. The name of a host stands for "
            "the addresses that it has when this is set."),
    Key("max.connection.creation.rate", INT, INT_MAX, MEDIUM, valid=at_least(0), mode=CLUSTER_WIDE,
        use=USED,
        doc="New connections per second over all listeners, except the inter-broker listener if there are "
            "others. Further connections wait and are served later, by address in turn. On each listener "
            "512 connections of one address may wait; others are closed. "
            "listener.name.<listener>.max.connection.creation.rate limits one listener in addition, also the "
            "inter-broker one."),
    Key("connections.max.idle.ms", LONG, 600_000, MEDIUM, use=USED,
        doc="A connection that is idle for this long is closed. The log has at most one line a second "
            "for them."),
    Key("connections.max.reauth.ms", LONG, 0, MEDIUM, use=USED,
        doc="How long a SASL session lasts before the client must authenticate again; 0 means for ever."),
    Key("connection.failed.authentication.delay.ms", INT, 100, LOW, valid=at_least(0), use=USED,
        doc="How long the answer to a failed authentication is delayed."),
    Key("request.timeout.ms", INT, 30000, HIGH, use=USED,
        doc="How long a transaction marker waits for its replication. For other requests between brokers, "
            "controller.socket.timeout.ms and replica.socket.timeout.ms apply here."),
    Key("background.threads", INT, 10, HIGH, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="Threads of the scheduler that runs retention, checkpoints and other periodic tasks."),
    Key("max.request.partition.size.limit", INT, 2000, MEDIUM, valid=at_least(1),
        doc="The most partitions in one DescribeTopicPartitions answer."),
    Key("server.max.startup.time.ms", LONG, LONG_MAX, MEDIUM, valid=at_least(0),
        doc="How long start-up may take. Here systemd's TimeoutStartSec limits it."),
)
# fmt: on
