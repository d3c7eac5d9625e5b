"""Compares two ways to start a distributed system: each host by itself, or a master that pushes."""
