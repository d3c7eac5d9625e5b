"""Moves of partitions between brokers: `landline rebalance`, `landline drain` and `landline fill`."""
