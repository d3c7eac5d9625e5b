"""Measures what many members share, for any number of them: ZooKeeper's sessions, and the
controller's requests.
"""
