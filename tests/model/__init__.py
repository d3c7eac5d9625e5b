"""A cluster in one thread: real partitions, logs, fetchers and controllers; the network between them is lists."""
