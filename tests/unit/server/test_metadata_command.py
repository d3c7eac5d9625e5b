"""Whoever restores a tree has to know that it is gone: no other failure to read it has that exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.arguments import make_parser
from broker.server import metadata_command
from broker.server.metadata_command import EXIT_DONE, EXIT_FAILED, EXIT_NO_TREE, EXIT_NO_ZOOKEEPER, run
from broker.zookeeper import znodes
from broker.zookeeper.acl import Acl
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import ConnectionLossError, ConnectTimeoutError, StoreError
from broker.zookeeper.tree_backup import OPEN_ACL, Backup, Node, encode

PROPERTIES = {"zookeeper.connect": "zk:2181/kafka"}


class Ensemble(EmbeddedStore):
    """As ZooKeeper is for the command: a tree, and what its nodes' ACLs show, or what fails."""

    def __init__(self, *paths, acl=OPEN_ACL, fails=None):
        super().__init__()
        self.connect()
        self._acl, self._fails = acl, fails
        for path in paths:
            self.ensure_path(path)
            self.set(path, znodes.encode_cluster_id("c1"))

    def get_acls_many(self, paths):
        if self._fails is not None:
            raise self._fails
        return [self._acl for _ in paths]


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Runs `landline metadata` with an ensemble, or with what is raised where one is looked for."""

    def of(verb, ensemble, file=None):
        def connected(_tree):
            if isinstance(ensemble, Exception):
                raise ensemble
            return ensemble

        monkeypatch.setattr(metadata_command, "_connected", connected)
        words = ["metadata", verb, str(file or tmp_path / "tree"), "--zookeeper=zk:2181/kafka"]
        said = []
        return run(make_parser(Path("/d")).parse_args(words), PROPERTIES, said.append), " ".join(said)

    return of


def test_a_tree_that_is_there_is_saved(command, tmp_path):
    assert command("backup", Ensemble("/cluster/id")) == (EXIT_DONE, "")
    assert (tmp_path / "tree").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("paths", [(), ("/brokers/ids", "/landline/clock")])
def test_an_ensemble_without_the_tree_has_an_exit_code_of_its_own(command, paths, tmp_path):
    code, said = command("backup", Ensemble(*paths))
    assert code == EXIT_NO_TREE
    assert "there is no cluster: /cluster/id is missing" in said
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize(
    ("ensemble", "code"),
    [
        (ConnectTimeoutError("no ZooKeeper at zk:2181"), EXIT_NO_ZOOKEEPER),
        (Ensemble("/cluster/id", fails=ConnectionLossError("/cluster")), EXIT_NO_ZOOKEEPER),
        (Ensemble("/cluster/id", acl=(Acl("digest", "u:x", "r"),)), EXIT_FAILED),
        (Ensemble("/cluster/id", fails=StoreError("/cluster: the ACL forbids it")), EXIT_FAILED),
    ],
    ids=["nobody answers", "it goes away", "an ACL that is not shown", "an ACL that forbids it"],
)
def test_a_tree_that_could_not_be_read_is_not_one_that_is_gone(command, ensemble, code):
    assert command("backup", ensemble)[0] == code


def test_a_disk_without_space_is_no_tree_that_is_gone(command, tmp_path):
    (tmp_path / "file").write_text("")
    assert command("backup", Ensemble("/cluster/id"), tmp_path / "file" / "tree")[0] == EXIT_FAILED


def test_a_file_of_no_cluster_is_no_tree_that_is_gone(command, tmp_path):
    content = encode(Backup("c1", "2026-11-23T00:00:00+00:00", "", (Node("/", b""),)))
    (tmp_path / "tree").write_bytes(content)
    for verb in ("verify", "restore"):
        assert command(verb, Ensemble())[0] == EXIT_FAILED
