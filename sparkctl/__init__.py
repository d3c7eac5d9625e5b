"""Launches Spark standalone as Spark does, from the master over ssh. ``fabfile.py`` is its face."""
