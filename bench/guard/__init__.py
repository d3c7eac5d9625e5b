"""The cost guard, ``make perf-check``: what a request costs the broker, against a committed baseline.

``stage`` puts a whole broker and its clients on one thread, ``workloads`` says what is asked of it, ``reference`` is
the loop that tells one machine from another, ``measure`` times the two by turns, ``verdict`` judges and ``table``
prints. Imports nothing of the other benchmarks.
"""
