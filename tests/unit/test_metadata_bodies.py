"""Encoded Metadata answers are given for the snapshot they were made of, and for no other."""

from __future__ import annotations

from broker.server.apis.metadata import MetadataBodies
from broker.server.metadata_cache import Snapshot

KEY = (12, "PLAINTEXT", ("orders",))


def test_a_body_is_found_again_for_its_snapshot():
    bodies, snapshot = MetadataBodies(), Snapshot(version=1)
    bodies.put(snapshot, KEY, b"one")
    assert bodies.get(snapshot, KEY) == b"one"


def test_another_snapshot_of_the_same_version_does_not_get_it():
    """Two brokers in one process count their snapshots alike."""
    bodies, one, other = MetadataBodies(), Snapshot(version=1), Snapshot(version=1)
    bodies.put(one, KEY, b"one")
    assert bodies.get(other, KEY) is None


def test_a_late_body_of_an_older_snapshot_is_never_given_for_the_newer():
    bodies, older, newer = MetadataBodies(), Snapshot(version=1), Snapshot(version=2)
    bodies.put(newer, KEY, b"newer")
    bodies.put(older, KEY, b"older")  # by a thread that began before the update
    assert bodies.get(newer, KEY) in (None, b"newer")


def test_names_that_clients_make_up_do_not_fill_the_memory():
    bodies, snapshot = MetadataBodies(), Snapshot(version=1)
    keys = [(12, "PLAINTEXT", (f"t{number}",)) for number in range(1000)]
    for key in keys:
        bodies.put(snapshot, key, b"x")
    assert sum(bodies.get(snapshot, key) is not None for key in keys) <= 64
