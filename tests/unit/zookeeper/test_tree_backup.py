"""A backup's file, what is left out of the tree, and what may not come back as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.zookeeper import znodes
from broker.zookeeper.acl import Acl
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import StoreError
from broker.zookeeper.tree_backup import Backup, BackupError, Node, decode, encode, is_kept, restored
from broker.zookeeper.tree_copy import read_tree, write_tree

ID = Node("/cluster/id", znodes.encode_cluster_id("c1"))
NODES = (Node("/", b""), Node("/a", b"\0\xff", 3, (Acl("digest", "u:h", "rc"),)), Node("/cluster", b""), ID)
FILE = encode(Backup("c1", "2026-11-23T00:00:00+00:00", "/kafka", NODES))


class TreeInMemory(EmbeddedStore):
    """With ACLs, by path."""

    def __init__(self) -> None:
        super().__init__()
        self.acls: dict[str, tuple[Acl, ...]] = {}
        self.written: list[str] = []
        self.connect()

    def get_acls_many(self, paths):
        return [self.acls.get(path, (Acl("world", "anyone", "rwcda"),)) for path in paths]

    def set_acls_many(self, acls):
        for path, entries in acls:
            self.acls[path] = tuple(entries)
            self.written.append(path)

    def create_with_acls(self, path, data, acls):
        self._allow_child_of(path)
        self.create(path, data)
        self.acls[path] = tuple(acls)

    def create(self, path, data=b"", **more):
        if path == ID.path:
            self.written.append(path)
        return super().create(path, data, **more)

    def _allow_child_of(self, path):
        """As ZooKeeper does for a session without credentials."""
        (acls,) = self.get_acls_many([path.rpartition("/")[0] or "/"])
        if not any(acl.identity == "anyone" and "c" in acl.permissions for acl in acls):
            raise StoreError(f"{path}: no auth")


def test_a_file_holds_what_was_put_into_it():
    assert decode(FILE).nodes == NODES
    assert encode(decode(FILE)) == FILE


@pytest.mark.parametrize("place", range(0, len(FILE) - 1, 7))
def test_a_flipped_bit_anywhere_is_refused(place):
    damaged = FILE[:place] + bytes([FILE[place] ^ 1]) + FILE[place + 1 :]
    with pytest.raises(BackupError):
        decode(damaged)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no backup"),
        (b"[1]\n", "no backup"),
        (FILE.replace(b'"format":1', b'"format":2'), "format 2, this release reads format 1"),
        (FILE[: FILE.rindex(b'{"sha256')], "cut off"),
        (FILE.replace(b'"/a"', b'"/b"'), "damaged"),
    ],
)
def test_another_file_is_refused_in_words(content, words):
    with pytest.raises(BackupError, match=words):
        decode(content)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/zookeeper/quota", False),
        ("/controller", False),
        ("/controller_epoch", True),
        ("/config/changes", True),
        ("/config/changes/config_change_0000000001", False),
        ("/isr_change_notification/isr_change_0000000001", False),
        ("/log_dir_event_notification/log_dir_event_0000000001", False),
        ("/landline/stop_permit", False),
        ("/landline/move_turn", False),
        ("/admin/delete_topics/t", True),
        ("/admin/preferred_replica_election", False),
    ],
)
def test_queues_and_claims_are_left_out(path, kept):
    assert is_kept(path) is kept


def test_a_tree_is_read_and_made_anew_with_its_acls_and_the_versions_that_count():
    source, target = TreeInMemory(), TreeInMemory()
    for path in ("/cluster", "/brokers", "/brokers/ids", "/brokers/seqid"):
        source.create(path)
    source.create("/cluster/id", ID.data)
    source.create("/brokers/ids/1", b"x", ephemeral=True)
    for _ in range(1234):
        source.set("/brokers/seqid", b"")
    source.acls["/cluster"] = (Acl("world", "anyone", "r"), Acl("digest", "u:hash", "rwcda"))
    nodes = read_tree(source)
    write_tree(target, nodes)
    assert read_tree(target) == [node for node in nodes if node.path != "/brokers/ids/1"]
    assert target.get("/brokers/seqid")[1].version == 1234


def test_brokers_find_no_cluster_before_each_acl_is_as_it_was():
    store = TreeInMemory()
    secret = (Acl("digest", "u:hash", "rwcda"),)
    listed = (Acl("world", "anyone", "rc"), *secret)
    id_node = replace(ID, acls=(Acl("world", "anyone", "r"),))
    acls = {"/": listed, "/cluster": listed, "/config": secret}
    write_tree(store, [*(Node(path, b"", acls=entries) for path, entries in acls.items()), id_node])
    assert store.written == [*acls, "/cluster/id"]
    assert store.acls == {**acls, "/cluster/id": id_node.acls}


def test_an_acl_that_would_keep_the_cluster_id_out_comes_after_it_and_none_else():
    store = TreeInMemory()
    closed = (Acl("world", "anyone", "r"), Acl("digest", "u:hash", "rwcda"))
    write_tree(store, [Node(path, b"", acls=closed) for path in ("/", "/cluster", "/config")] + [ID])
    assert store.written == ["/", "/config", "/cluster/id", "/cluster"]
    assert store.acls["/cluster"] == closed


def test_a_tree_that_is_there_is_left_alone():
    store = TreeInMemory()
    store.create("/brokers")
    with pytest.raises(BackupError, match="not empty: it has /brokers"):
        write_tree(store, NODES)


def test_a_masked_digest_is_refused():
    store = TreeInMemory()
    store.create("/secret")
    store.acls["/secret"] = (Acl("digest", "user:x", "rwcda"),)
    with pytest.raises(BackupError, match="/secret shows the ACL"):
        read_tree(store)


def test_a_restore_that_dies_leaves_no_cluster_id_and_says_what_to_remove():
    store = TreeInMemory()
    nodes = [*NODES, Node("/orphan/of/nobody", b"")]
    with pytest.raises(BackupError, match="unfinished"):
        write_tree(store, sorted(nodes, key=lambda node: node.path))
    assert store.exists("/cluster/id") is None


def test_producer_ids_go_on_beyond_those_of_an_older_backup_also_where_there_were_none():
    path = znodes.PRODUCER_ID_BLOCK
    for data, least in ((b"", 0), (znodes.encode_producer_id_block(1, 5000, 5999), 6000)):
        first = next(iter(restored([Node(path, data), ID])))
        assert znodes.decode_producer_id_block_end(first.data) > least + 1_000_000
