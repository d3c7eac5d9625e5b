"""Nothing acknowledged is lost: a load of real clients, the checker of what they saw, and faults meanwhile.

``history`` is what clients saw, ``checker`` finds what is wrong in it (also as a command), ``load`` makes the clients.
"""
