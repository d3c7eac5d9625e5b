"""Simulates both models of starting on up to ten thousand hosts, with durations drawn from measurements on
a few.
"""
