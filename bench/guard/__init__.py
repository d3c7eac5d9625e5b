"""The cost guard, ``make perf-check``: what a request costs the broker, against a committed baseline.

``stage`` runs a whole broker and its clients on one thread, ``workloads`` has the requests. Instructions:
``counted`` serves them under valgrind, which ``callgrind`` starts, and ``counts`` judges and prints. CPU time
(``make perf-times``): ``reference`` is the loop that compensates for different machines, ``measure`` times both
alternately, ``verdict`` judges and ``table`` prints. Imports nothing from the other benchmarks.
"""
