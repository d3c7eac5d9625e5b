"""The coordinator's configuration, read once, because in Kafka 3.9 all of it is read-only."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The configs ``transaction.*`` and ``transactional.id.*``; Kafka's TransactionConfig. Times are in
    milliseconds. The TransactionCoordinator reads them once.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_interval_ms: int = 10_000
    expiration_interval_ms: int = 3_600_000
    log_partitions: int = 50
    load_bytes: int = 5_242_880
    max_bytes: int = 256 << 20

    @classmethod
    def from_config(cls, config: BrokerConfig) -> TransactionSettings:
        return cls(
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            id_expiration_ms=config.int("transactional.id.expiration.ms"),
            abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            log_partitions=config.int("transaction.state.log.num.partitions"),
            load_bytes=config.int("transaction.state.log.load.buffer.size"),
            max_bytes=config.int("landline.transaction.max.bytes"),
        )
