"""Where a run keeps a tree or an archive for a while: who can read it, and what becomes of what an ended run left."""

import os
import time

import pytest

from tests.support.deploy_code import load

module = load("plugins/module_utils/work_dirs.py")
collect = load("plugins/modules/support_collect.py")


@pytest.fixture
def parent(tmp_path):
    return tmp_path / "lib" / "work"


def left(parent, name, age_s):
    """What a run has left so long ago."""
    path = parent / name
    path.mkdir(parents=True)
    (path / "tree").write_text("secret")
    parent.chmod(0o700)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def mode(path):
    return path.stat().st_mode & 0o7777


def test_only_its_owner_reads_it_and_nothing_is_left_of_it(parent):
    path = module.made(parent)
    assert (mode(path), mode(parent)) == (0o700, 0o711)
    (path / "tree").write_text("secret")
    assert module.removed(path)
    assert not parent.exists()
    assert not module.removed(path)


def test_what_an_ended_run_left_goes_and_that_of_a_run_beside_it_stays(parent):
    old, young = left(parent, "run-old", 3700), left(parent, "run-young", 3500)
    path = module.made(parent)
    assert sorted(parent.iterdir()) == sorted([path, young])
    assert not old.exists()
    module.removed(path)
    assert list(parent.iterdir()) == [young]


def test_a_link_that_was_left_is_removed_and_not_followed(parent, tmp_path):
    others = left(tmp_path, "others", 3700)
    parent.mkdir(parents=True)
    (parent / "run-link").symlink_to(others)
    os.utime(parent / "run-link", (0, 0), follow_symlinks=False)
    module.removed(module.made(parent))
    assert (others / "tree").exists()


def test_a_directory_that_somebody_else_may_have_made_is_refused(parent, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    parent.parent.mkdir()
    parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(module.WorkDirError, match="work is no directory"):
        module.made(parent)
    parent.unlink()
    parent.mkdir()
    monkeypatch.setattr(module.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(module.WorkDirError, match=f"work is of the user {os.getuid()}, who could read"):
        module.made(parent)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_one_that_the_last_run_in_it_removes_meanwhile_is_made_again(parent, monkeypatch):
    makes, gone = module.tempfile.mkdtemp, []

    def mkdtemp(**options):
        if not gone:
            gone.append(parent.rmdir())
        return makes(**options)

    monkeypatch.setattr(module.tempfile, "mkdtemp", mkdtemp)
    assert module.made(parent).is_dir()


def test_a_user_that_there_is_not_is_named(parent):
    with pytest.raises(module.WorkDirError, match="nobody-of-this-name"):
        module.made(parent, "nobody-of-this-name")


def test_the_archive_for_support_is_in_such_a_directory(parent, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "run", lambda *_argv, **_options: "")
    old = left(parent, "run-old", 3700)
    params = {
        "config_dir": str(tmp_path / "etc"),
        "zookeeper_config": str(tmp_path / "zoo.cfg"),
        "landline": str(tmp_path / "landline"),
        "work_dir": str(parent),
        "since": "-1h",
        "journal_bytes": 1,
        "znodes": False,
    }
    path = module.Path(collect.collect(params)["path"])
    assert (path.parent.parent, mode(path.parent), mode(path)) == (parent, 0o700, 0o600)
    assert not old.exists()

    def fails(*_arguments):
        raise MemoryError

    module.removed(path.parent)
    monkeypatch.setattr(collect, "collect_host", fails)
    monkeypatch.setattr(collect.Archive, "add", fails)
    with pytest.raises(MemoryError):
        collect.collect(params)
    assert not parent.exists()
