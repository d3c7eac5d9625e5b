"""Landline beside Apache Kafka 3.9.1 and 4.1, measured in one run on one machine: ``python -m bench --help``.

``session`` runs the rounds of the ``suites``, and ``client`` makes the load. A workload uses its ``visit``.
``machine`` and ``pages`` handle CPUs and memory, ``results`` and ``percentiles`` compute the figures,
``goals`` has their targets, ``report`` and ``plot`` show them. ``rig`` starts the brokers.
"""
