"""Landline beside Apache Kafka 3.9.1, measured in one run on one machine: ``python -m bench --help``.

``session`` runs the rounds, ``loads`` and ``raw`` make the load, ``machine`` knows about CPUs and pages,
``results`` does the sums, ``report`` and ``plot`` show them. Brokers are started by the tests' support.
"""
