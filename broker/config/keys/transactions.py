"""Producer ids and transactions."""

from __future__ import annotations

from typing import Final

from broker.config.key import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, USED, Key
from broker.config.validators import at_least

# fmt: off
KEYS: Final = (
    Key("producer.id.expiration.ms", INT, 86_400_000, LOW, valid=at_least(1), mode=CLUSTER_WIDE, use=USED,
        doc="A partition forgets an idle producer's id after this time."),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, LOW, valid=at_least(1),
        doc="How often idle producer ids are removed."),
    Key("transaction.max.timeout.ms", INT, 900_000, HIGH, valid=at_least(1), use=USED,
        doc="The longest transaction timeout that a producer may request."),
    Key("transaction.partition.verification.enable", BOOLEAN, True, LOW, mode=CLUSTER_WIDE, use=USED,
        doc="Whether a partition checks that its transaction exists (KIP-890)."),
    Key("transaction.state.log.num.partitions", INT, 50, HIGH, valid=at_least(1), use=USED,
        doc="Partitions of __transaction_state. Do not change it once the topic exists."),
    Key("transaction.state.log.replication.factor", SHORT, 3, HIGH, valid=at_least(1), use=USED,
        doc="Replicas of __transaction_state. With fewer brokers, one replica per broker."),
    Key("transaction.state.log.min.isr", INT, 2, HIGH, valid=at_least(1), use=USED,
        doc="min.insync.replicas of __transaction_state."),
    Key("transaction.state.log.segment.bytes", INT, 104_857_600, HIGH, valid=at_least(1), use=USED,
        doc="Segment size of __transaction_state."),
    Key("transaction.state.log.load.buffer.size", INT, 5_242_880, HIGH, valid=at_least(1), use=USED,
        doc="Read size for loading transactions."),
    Key("transactional.id.expiration.ms", INT, 604_800_000, HIGH, valid=at_least(1), use=USED,
        doc="An unused transactional id is forgotten after this time."),
    Key("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, LOW, valid=at_least(1),
        use=USED,
        doc="How often timed-out transactions are aborted."),
    Key("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, LOW,
        valid=at_least(1), use=USED,
        doc="How often expired transactional ids are removed."),
)
# fmt: on
