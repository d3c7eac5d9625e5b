"""Landline beside Apache Kafka 3.9.1 and 4.1, measured in one run on one machine: ``python -m bench --help``.

``session`` runs the rounds of what ``suites`` ask for, ``client`` makes the load, ``visit`` is what a workload works
with, ``machine`` and ``pages`` know about CPUs and memory, ``results`` and ``percentiles`` do the sums, ``goals`` are
what they are held to, ``report`` and ``plot`` show them. Brokers are started by ``rig``.
"""
