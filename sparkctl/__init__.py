"""Launches Spark standalone from its master over ssh, as Spark's own scripts do. ``fabfile.py`` is its
command line.
"""
