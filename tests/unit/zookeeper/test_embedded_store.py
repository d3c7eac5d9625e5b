"""The standalone store keeps ZooKeeper's semantics, and its tree over restarts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SetData,
    Stat,
    StoreError,
)

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def store(tmp_path: Path):
    store = opened(tmp_path / "metadata.db")
    yield store
    store.close()


def opened(path: Path) -> EmbeddedStore:
    store = EmbeddedStore(path)
    store.connect(0, Event())
    return store


def test_a_created_node_is_read_back_with_its_stat(store):
    path, stat = store.create("/a", b"one")
    assert path == "/a"
    assert store.get("/a") == (b"one", stat)
    assert (stat.version, stat.ephemeral_owner, stat.num_children) == (0, 0, 0)


def test_a_node_needs_its_parent_and_is_created_once(store):
    with pytest.raises(NoNodeError):
        store.create("/a/b")
    store.ensure_path("/a/b/c")
    with pytest.raises(NodeExistsError):
        store.create("/a/b")
    assert store.children("/a") == ["b"]


def test_a_write_with_an_old_version_is_refused(store):
    store.create("/a")
    assert store.set("/a", b"1", 0).version == 1
    with pytest.raises(BadVersionError):
        store.set("/a", b"2", 0)
    assert store.get("/a")[0] == b"1"


def test_a_node_with_children_is_not_deleted(store):
    store.ensure_path("/a/b")
    with pytest.raises(NotEmptyError):
        store.delete("/a")
    store.delete("/a/b")
    store.delete("/a")
    assert store.exists("/a") is None


def test_sequence_nodes_are_numbered_and_never_reuse_a_number(store):
    store.create("/q")
    assert store.create("/q/n_", sequence=True)[0] == "/q/n_0000000000"
    store.delete("/q/n_0000000000")
    assert store.create("/q/n_", sequence=True)[0] == "/q/n_0000000001"


def test_a_multi_is_all_or_nothing_and_names_the_failing_operation(store):
    store.create("/epoch", b"1")
    ops = [Create("/a"), SetData("/epoch", b"2"), Delete("/missing")]
    with pytest.raises(NoNodeError) as failed:
        store.multi(ops)
    assert failed.value.op_index == 2
    assert store.exists("/a") is None
    assert store.get("/epoch")[0] == b"1"
    assert store.get("/epoch")[1].version == 0


def test_a_multi_yields_one_result_for_each_operation(store):
    store.create("/epoch", b"1")
    created, stat, checked = store.multi([Create("/a"), SetData("/a", b"x"), Check("/epoch", 0)])
    assert created == "/a"
    assert isinstance(stat, Stat)
    assert stat.version == 1
    assert checked is None


def test_multis_in_a_row_fail_one_by_one(store):
    results = store.multi_many(
        [[Create("/a")], [Create("/a")], [Create("/b"), Check("/a", 7)], [Create("/c")]]
    )
    assert results[0] == ["/a"]
    assert isinstance(results[1], NodeExistsError)
    assert isinstance(results[2], BadVersionError)
    assert results[2].op_index == 1
    assert results[3] == ["/c"]
    assert sorted(store.children("/")) == ["a", "c"]


def test_the_tree_survives_a_restart_and_ephemeral_nodes_do_not(tmp_path):
    path = tmp_path / "metadata.db"
    store = opened(path)
    store.ensure_path("/brokers/ids")
    store.create("/brokers/ids/0", b"me", ephemeral=True)
    store.create("/q")
    store.create("/q/n_", sequence=True)
    store.set("/q", b"data")
    before = store.get("/q")
    store.close()

    store = opened(path)
    assert store.get("/q") == before
    assert store.children("/brokers/ids") == []
    assert store.create("/q/n_", sequence=True)[0] == "/q/n_0000000001"
    store.close()


def test_what_was_written_survives_a_killed_process(tmp_path):
    path = tmp_path / "metadata.db"
    script = (
        "import os, sys, pathlib\n"
        "from broker.zookeeper.embedded import EmbeddedStore\n"
        "store = EmbeddedStore(pathlib.Path(sys.argv[1]))\n"
        "store.connect()\n"
        "store.ensure_path('/a/b')\n"
        "store.set('/a/b', b'kept')\n"
        "store.create('/me', ephemeral=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=REPOSITORY, timeout=60, check=False
    )
    assert killed.returncode == -9
    store = opened(path)
    assert store.get("/a/b")[0] == b"kept"
    assert store.exists("/me") is None
    store.close()


def test_transaction_ids_rise_over_restarts(tmp_path):
    path = tmp_path / "metadata.db"
    epochs = []
    for _ in range(3):
        store = opened(path)
        for _ in range(5):
            store.create("/me", ephemeral=True)
            store.delete("/me")
        epochs.append(store.create("/me", ephemeral=True)[1].czxid)
        store.close()
    assert epochs == sorted(set(epochs))


def test_a_node_deleted_and_made_again_as_ephemeral_leaves_nothing_in_the_file(tmp_path):
    path = tmp_path / "metadata.db"
    store = opened(path)
    store.create("/a", b"kept")
    store.multi([Delete("/a"), Create("/a", b"fleeting", ephemeral=True)])
    store.close()
    store = opened(path)
    assert store.exists("/a") is None
    store.close()


def test_watches_fire_after_every_change_until_cancelled(store):
    fired = []
    data = store.watch_data("/a", lambda: fired.append("data"))
    store.watch_children("/a", lambda: fired.append("children"))
    store.create("/a")
    assert sorted(fired) == ["children", "data"]
    store.set("/a", b"1")
    assert fired[2:] == ["data"]
    store.create("/a/b")
    assert fired[3:] == ["children"]
    data.cancel()
    store.set("/a", b"2")
    assert len(fired) == 4


def test_a_failed_multi_fires_no_watch(store):
    fired = []
    store.watch_children("/", lambda: fired.append(1))
    with pytest.raises(BadVersionError):
        store.multi([Create("/a"), Check("/", 99)])
    assert fired == []


def test_a_callback_may_read_the_store(store):
    seen = []
    store.watch_data("/a", lambda: seen.append(store.get("/a")[0]))
    store.create("/a", b"now")
    assert seen == [b"now"]


def test_a_second_process_is_refused_and_told_what_to_do(store, tmp_path):
    with pytest.raises(StoreError, match=r"another process uses .*metadata\.db.*needs ZooKeeper"):
        opened(tmp_path / "metadata.db")


def test_a_damaged_file_is_refused_and_named(tmp_path):
    path = tmp_path / "metadata.db"
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"metadata\.db.*restore the file, or move it away"):
        opened(path)


def test_a_closed_store_writes_nothing(tmp_path):
    store = opened(tmp_path / "metadata.db")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.create("/a")
    assert store.exists("/a") is None


def test_a_store_without_a_file_lives_in_memory():
    store = EmbeddedStore()
    store.connect(0, Event())
    store.ensure_path("/a/b")
    assert store.children("/a") == ["b"]


def test_only_its_owner_reads_the_file_with_the_credentials(tmp_path: Path) -> None:
    store = opened(tmp_path / "metadata.db")
    store.create("/node", b"secret")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, 0o600)
    assert "metadata.db-wal" in modes
    store.close()
