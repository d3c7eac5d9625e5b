"""Measures what many members share, with as many as asked for: ZooKeeper's sessions, and the controller's word."""
