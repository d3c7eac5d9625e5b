"""The controller, elections and controlled shutdown."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, HIGH, INT, LONG, MEDIUM, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("controller.socket.timeout.ms", INT, 30000, MEDIUM, use=USED,
        doc="How long the controller waits for a broker's answer, and a broker for the controller's."),
    Key("controlled.shutdown.enable", BOOLEAN, True, MEDIUM, use=USED,
        doc="Whether a stopping broker first moves its leaderships to other brokers."),
    Key("controlled.shutdown.max.retries", INT, 3, MEDIUM, use=USED,
        doc="How often a stopping broker tries to move its leaderships."),
    Key("controlled.shutdown.retry.backoff.ms", LONG, 5000, MEDIUM, use=USED,
        doc="How long it waits between these attempts."),
    Key("auto.leader.rebalance.enable", BOOLEAN, True, HIGH, use=USED,
        doc="Whether the controller moves leadership back to the preferred replicas."),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, HIGH, valid=at_least(1), use=USED,
        doc="How often the controller checks for leaders that are not the preferred ones."),
    Key("leader.imbalance.per.broker.percentage", INT, 10, HIGH, use=USED,
        doc="The percentage of a broker's preferred leaderships that others may have before the controller "
            "rebalances them."),
)
# fmt: on
