"""Tests that no acknowledged record is lost: a load of real clients, faults, and a checker of what the
clients saw.

``history`` records what clients saw, ``checker`` finds what is wrong in it (also as a command), and ``load``
runs the clients.
"""
