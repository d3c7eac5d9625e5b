"""A release deployed from a checkout: what of its roles and plugins is not the release's is said at the end."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from broker import __version__
from tests.support.deploy_code import ROOT, load
from tests.support.plays import played

checkout = load("plugins/module_utils/release_checkout.py")
lookup = load("plugins/lookup/checkout_warning.py")
COMMIT = "352220b0aaaabbbbccccddddeeeeffff00001111"
CHOOSE = """
- hosts: brokers
  gather_facts: false
  tasks:
    - ansible.builtin.import_role: {name: landline.cluster.broker, tasks_from: release}
"""


def test_the_same_files_are_nothing_to_warn_of():
    assert checkout.warning_of("1.0", COMMIT, checkout.differing(["", ""])) == ""


def test_changed_and_new_files_are_counted_once_and_the_first_are_named():
    files = checkout.differing(["roles/c\0roles/a\0", "roles/b\0roles/a\0plugins/d\0deploy.yml\0"])
    said = checkout.warning_of("1.0", COMMIT, files)
    assert "5 files are not as in the release's commit 352220b0aaaa: " in said
    assert "352220b0aaaa: deploy.yml, plugins/d, roles/a, and 2 more. Check out that commit, " in said
    assert said.endswith(
        "or install landline-cluster-1.0.tar.gz and deploy by that, or set landline_version to dev "
        "if this working tree is meant"
    )


def test_one_file_is_one():
    said = checkout.warning_of("1.0", COMMIT, ["roles/a"])
    assert "in which 1 file is not as in the release's commit 352220b0aaaa: roles/a. Check" in said


def test_nobody_is_sent_to_a_commit_that_does_not_have_all_of_the_release():
    said = checkout.warning_of("1.0", f"{COMMIT}-dirty", ["roles/a"])
    assert "commit 352220b0aaaa-dirty: roles/a. Install landline-cluster-1.0.tar.gz and" in said
    assert checkout.base_of(f"{COMMIT}-dirty") == COMMIT


@pytest.mark.parametrize("commit", ["", "-dirty", "None", "--output=/tmp/x", "main"])
def test_what_is_no_commit_is_not_asked_for(commit):
    assert checkout.base_of(commit) == ""


@pytest.fixture
def git(tmp_path):
    """Git in a checkout with one committed role, plugin and document, and what it says."""
    root = tmp_path / "checkout"
    for name in ("roles/a.yml", "plugins/b.py", "deploy.yml", "docs/c.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("first\n")
    (root / ".gitignore").write_text("*.pyc\n")

    def run(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
        argv = ["git", "-C", str(root), *identity, *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message=first")
    run.root = root
    run.first = run("rev-parse", "HEAD")
    return run


def warned(root, commit):
    return lookup.checkout_warning(root, "1.0", commit)


def test_a_checkout_of_the_releases_commit_is_not_warned_of_whatever_lies_beside_the_roles(git):
    (git.root / "docs/c.md").write_text("second\n")
    (git.root / "docs/new.md").write_text("new\n")
    (git.root / "plugins/b.pyc").write_text("ignored\n")
    assert warned(git.root, git.first) == ""


def test_files_that_are_changed_or_new_or_gone_or_committed_since_differ(git):
    (git.root / "roles/a.yml").write_text("second\n")
    assert "1 file is not as in the release's commit" in warned(git.root, git.first)
    git("commit", "--quiet", "--all", "--message=second")
    (git.root / "roles/ä b.yml").write_text("new\n")
    (git.root / "deploy.yml").unlink()
    said = warned(git.root, git.first)
    assert f"3 files are not as in the release's commit {git.first[:12]}: " in said
    assert ": deploy.yml, roles/a.yml, roles/ä b.yml. Check out" in said


def test_a_change_that_is_taken_back_is_none(git):
    (git.root / "roles/a.yml").write_text("second\n")
    git("commit", "--quiet", "--all", "--message=second")
    (git.root / "roles/a.yml").write_text("first\n")
    assert warned(git.root, git.first) == ""


def test_a_commit_that_the_checkout_does_not_have_cannot_be_compared_and_that_is_said(git):
    said = warned(git.root, COMMIT)
    assert (
        "cannot be compared with the release's commit 352220b0aaaa (git says: fatal: bad object 3522" in said
    )


def test_without_git_that_is_said(git, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "cannot be compared with the release's commit" in warned(git.root, git.first)


def test_an_installed_collection_is_not_warned_of_even_within_a_checkout(git):
    (git.root / "roles/a.yml").write_text("second\n")
    assert warned(git.root / "roles", git.first) == ""
    (git.root / "MANIFEST.json").write_text("{}")
    assert warned(git.root, git.first) == ""


def test_without_a_commit_nothing_is_compared(git):
    (git.root / "roles/a.yml").write_text("second\n")
    assert warned(git.root, "") == ""


@pytest.fixture
def choose(git, tmp_path):
    """What is said after the recap when the release of two hosts is chosen from the checkout with these roles, twice as
    in playbooks/apply.yml.
    """
    for name in ("plugins", "roles"):
        shutil.copytree(
            ROOT / name, git.root / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "galaxy.yml", git.root)
    git("add", ".")
    git("commit", "--quiet", "--message=roles")
    place = tmp_path / "collections/ansible_collections/landline"
    place.mkdir(parents=True)
    (place / "cluster").symlink_to(git.root)
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "broker_archive_dir": str(tmp_path),
        "landline_version": __version__,
    }
    (tmp_path / "hosts.json").write_text(json.dumps({"brokers": {"hosts": {"h1": here, "h2": here}}}))
    (tmp_path / "play.yml").write_text(CHOOSE * 2)
    (tmp_path / f"landline-{__version__}.json").write_text(json.dumps({"commit": git("rev-parse", "HEAD")}))

    def run(*arguments):
        env = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"), "COLUMNS": "500"}
        done = played(tmp_path, *arguments, "-i", tmp_path / "hosts.json", tmp_path / "play.yml", env=env)
        assert done.returncode == 0
        assert set(re.findall(r"changed=(\d+)", done.stdout)) == {"0"}
        return re.sub(r"\s+", " ", done.stdout.partition("PLAY RECAP")[2])

    return run


@pytest.mark.parametrize("mode", [[], ["--check"]])
def test_the_end_of_a_run_warns_once_of_a_checkout_with_the_number_of_the_release_and_other_roles(
    choose, git, mode
):
    with (git.root / "roles/broker/tasks/release.yml").open("a") as file:
        file.write("# {{ changed }}\n")
    (git.root / "roles/{{ new }}").write_text("")
    said = choose(*mode)
    assert said.count("[WARNING]: ") == 1
    assert f"[WARNING]: landline_version is {__version__}, and units and settings are those of this" in said
    assert ": roles/broker/tasks/release.yml, roles/{{ new }}. Check out that commit, or" in said


def test_the_end_of_a_run_from_the_releases_own_checkout_warns_of_nothing(choose):
    assert "WARNING" not in choose()
