"""`landline metadata tree`: every node is listed, and no credential."""

from __future__ import annotations

import json

from broker.server.tree_listing import listed
from broker.zookeeper.acl import Acl
from broker.zookeeper.store import Stat, StoreError

SECRET = "s3cret"
NODES = {
    "/": b"",
    "/zookeeper": b"",
    "/brokers": b"",
    "/brokers/ids": b'{"endpoints": ["PLAINTEXT://h:1"]}',
    "/config": b"",
    "/config/users": b"",
    "/config/users/alice": b'{"version":1,"config":{"SCRAM-SHA-256":"salt=s3cret"}}',
    "/config/users_landline_scram_secret": b"s3cret",
    "/config/brokers": b"",
    "/config/brokers/1": json.dumps(
        {"config": {"ssl.key.password": SECRET, "a.jaas.x": SECRET, "log.retention.ms": "1"}}
    ).encode(),
    "/config/brokers/2": b'{"version":1,"config":"s3cret"}',
    "/config/brokers/3": b'{"config":{"ssl.key.password":"s3cret"',
    "/config/brokers/4": b'["s3cret"]',
    "/delegation_token": b"",
    "/delegation_token/tokens": b"s3cret",
    "/below": b"",
    "/below/config": b"",
    "/below/config/users": b"",
    "/below/config/users/bob": b'{"version":1,"config":{"SCRAM-SHA-256":"salt=s3cret"}}',
    "/below/config/brokers": b"",
    "/below/config/brokers/1": b'{"config":{"ssl.key.password":"s3cret"}}',
    "/odd": b"\xff\x00",
    "/guarded": b"not for us",
}


class Tree:
    """These nodes; one of them may not be read."""

    def get_many(self, paths):
        if "/guarded" in paths:
            raise StoreError("no auth")
        return [(NODES[path], Stat(1, 0, 7 if path == "/brokers/ids" else 0, 0, 5, 0)) for path in paths]

    def get_acls_many(self, paths):
        return [(Acl("digest", "admin:s3crethash=", "rwcda"), Acl("world", "anyone", "r")) for _ in paths]

    def children_many(self, paths):
        return [
            [
                path.rpartition("/")[2]
                for path in NODES
                if path != "/" and (path.rpartition("/")[0] or "/") == parent
            ]
            for parent in paths
        ]


def test_the_tree_is_listed_without_credentials():
    lines = list(listed(Tree()))
    rows = {row["path"]: row for row in map(json.loads, lines)}
    assert rows.keys() == NODES.keys() - {"/zookeeper"}
    assert SECRET not in "".join(lines)
    assert rows["/config/users/alice"]["value"] == "(masked)"
    assert rows["/config/brokers/1"]["value"]["config"] == {
        "ssl.key.password": "(masked)",
        "a.jaas.x": "(masked)",
        "log.retention.ms": "1",
    }
    assert {rows[f"/config/brokers/{number}"]["value"] for number in (2, 3, 4)} == {"(masked)"}
    assert rows["/below/config/users/bob"]["value"] == "(masked)", "of another cluster, in a chroot"
    assert rows["/brokers/ids"]["value"] == {"endpoints": ["PLAINTEXT://h:1"]}
    assert rows["/brokers/ids"]["ephemeral"]
    assert rows["/odd"]["value"] == "\\xff\0"
    assert rows["/odd"]["acl"] == ["digest:admin:rwcda", "world:anyone:r"]
    assert rows["/guarded"]["error"] == "StoreError"
