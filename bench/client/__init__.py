"""Clients that cost little, so that the broker is what is measured: prepared bytes in, error codes out.

``batches`` and ``requests`` prepare bytes, ``connection`` moves them; ``transfer`` moves much, ``lanes`` many small
ones over many connections, ``latency`` few at a fixed rate, ``group`` plays the members of a group. ``tools`` runs
Kafka's own clients and kcat. Not client libraries: leaders are known, nothing is retried, any error code ends the run.
"""
