"""Real threads over one LogManager and ReplicaManager, with what must hold checked throughout, and the order of locks.

``python -m tests.stress --seconds 60 --seed 7``, or ``make stress``.
"""
