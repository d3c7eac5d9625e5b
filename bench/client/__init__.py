"""Clients that cost little CPU, so that the broker is measured: prepared bytes in, error codes out.

``batches`` and ``requests`` prepare bytes, and ``connection`` moves them. ``transfer`` moves large amounts,
``lanes`` many small requests over many connections, ``latency`` a few at a fixed rate; ``group`` acts as the
members of a group. ``tools`` runs Kafka's own clients and kcat. These are no client libraries: leaders are
known, nothing is retried, and any error code ends the run.
"""
