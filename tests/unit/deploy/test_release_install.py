"""A release is installed by one run at a time, and marked as complete only when its command starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rig.wait import wait_until
from tests.support.deploy_code import ROOT

# As Ansible runs a module: its arguments on the standard input.
RUN = f"""
import sys
sys.path[:0] = {[str(ROOT)]!r}
import ansible.module_utils.basic as basic
basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = sys.stdin.buffer.read(), "legacy"
from tests.support.deploy_code import load
load("plugins/modules/release_install.py").main()
"""
# Makes an environment whose programs write down what they are told, and end when they may.
PYTHON = """#!/bin/sh
echo "$*" >>{told}
mkdir -p {release}/venv/bin
for program in python landline; do
  printf '#!/bin/sh\\necho "$*" >>{told}\\nwhile [ -e {waits} ]; do sleep 0.05; done\\n[ ! -e {broken} ]' \\
    >{release}/venv/bin/$program
  chmod +x {release}/venv/bin/$program
done
"""


class Release:
    """A release's directory with its wheelhouse unpacked, on this machine."""

    def __init__(self, directory):
        self._told, self.directory = directory / "told", directory / "0.4.0"
        self.waits, self.broken = directory / "waits", directory / "broken"
        self.done = self.directory / ".installed"
        self.directory.mkdir()
        self._python = directory / "python3"
        self._python.write_text(
            PYTHON.format(told=self._told, release=self.directory, waits=self.waits, broken=self.broken)
        )
        self._python.chmod(0o755)

    def install(self, umask=0o022, before="", **more):
        """A run that installs it, begun; `before` is code that the module finds done."""
        wanted = {
            "directory": str(self.directory),
            "python": str(self._python),
            "done": str(self.done),
            "note": "0.4.0\n",
            **more,
        }
        arguments = self.directory.with_name("arguments")
        arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": wanted}))
        with arguments.open() as given:
            return subprocess.Popen(
                [sys.executable, "-c", before + RUN],
                stdin=given,
                stdout=subprocess.PIPE,
                text=True,
                umask=umask,
            )

    @property
    def made(self):
        """What is in its virtual environment."""
        return (self.directory / "venv").rglob("*")

    @property
    def told(self):
        return self._told.read_text().splitlines() if self._told.exists() else []


def said_by(run):
    return json.loads(run.communicate()[0])


@pytest.fixture
def release(tmp_path):
    return Release(tmp_path)


def test_it_is_installed_from_its_wheelhouse_by_hash_and_then_marked(release):
    assert said_by(release.install())["changed"] is True
    made, installed, compiled, started = release.told
    assert made == f"-m venv --clear {release.directory}/venv"
    assert "--no-index" in installed
    assert "--require-hashes" in installed
    assert f"--requirement {release.directory}/wheelhouse/requirements.txt" in installed
    assert "unchecked-hash" in compiled
    assert started == "--help"
    assert release.done.read_text() == "0.4.0\n"
    assert release.done.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_the_brokers_user_may_use_it_whatever_roots_umask_is(release, umask):
    assert said_by(release.install(umask))["changed"] is True
    modes = {each.name: each.stat().st_mode & 0o055 for each in (release.directory / "venv", *release.made)}
    assert modes == {"venv": 0o055, "bin": 0o055, "landline": 0o055, "python": 0o055}


def test_one_that_is_complete_is_left_alone(release):
    release.done.write_text("0.4.0\n")
    assert said_by(release.install())["changed"] is False
    assert release.told == []


def test_a_second_run_waits_and_takes_nothing_away(release):
    release.waits.touch()
    first = release.install()
    wait_until(lambda: len(release.told) == 2, 30)
    second = release.install()
    wait_until(lambda: str(release.directory / ".install.lock") in opens(second.pid), 30)
    release.waits.unlink()
    assert said_by(first)["changed"] is True
    assert said_by(second)["changed"] is False
    assert len([line for line in release.told if "venv --clear" in line]) == 1


def opens(pid):
    """The files that a process has open."""
    return {str(each.resolve()) for each in Path(f"/proc/{pid}/fd").iterdir()}


def test_a_run_that_died_leaves_no_lock(release):
    release.waits.touch()
    first = release.install()
    wait_until(lambda: len(release.told) == 2, 30)
    first.kill()
    first.communicate()
    release.waits.unlink()
    assert said_by(release.install())["changed"] is True
    assert release.done.exists()


def test_a_release_whose_command_does_not_start_is_not_complete(release):
    release.broken.touch()
    said = said_by(release.install())
    assert said["failed"] is True
    assert said["step"] == "install the wheels"
    assert said["msg"].startswith(f"{release.directory}: could not install the wheels: ")
    assert not release.done.exists()


def test_a_run_that_only_looks_says_what_it_would_do(release):
    assert said_by(release.install(_ansible_check_mode=True))["changed"] is True
    assert release.told == []


@pytest.mark.parametrize(("free_mb", "is_told"), [(12, True), (5000, False)])
def test_a_disk_that_is_nearly_full_is_told_of_with_what_failed(tmp_path, free_mb, is_told):
    """Python's own words of it have no reason."""
    release = Release(tmp_path)
    release.broken.touch()
    full = (
        f"import shutil; shutil.disk_usage = lambda path: shutil._ntuple_diskusage(0, 0, {free_mb << 20})\n"
    )
    words = said_by(release.install(before=full))["msg"]
    assert "could not install the wheels: " in words
    assert (f"There are {free_mb} MB left on its disk" in words) is is_told
