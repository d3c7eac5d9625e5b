import os

import pytest
from click.testing import CliRunner

from lab import preflight
from lab.cli import main


def everything(program):
    return f"/usr/bin/{program}"


def test_root_on_linux_with_every_package_can_have_a_lab():
    assert preflight.problem("linux", 0, everything) is None


def test_another_system_is_told_where_hosts_run():
    assert "Debian 12" in preflight.problem("darwin", 0, everything)


def test_missing_programs_are_named_with_the_command_that_installs_them_once_each():
    absent = {"systemd-nspawn", "ip", "tc", "ssh"}
    found = preflight.problem("linux", 0, lambda program: None if program in absent else everything(program))
    assert "missing systemd-nspawn, ip, tc, ssh" in found
    assert "apt-get install systemd-container iproute2 openssh-client`" in found


def test_other_users_than_root_are_told_so():
    assert "root" in preflight.problem("linux", 1000, everything)


@pytest.mark.parametrize("command", [["up"], ["down"], ["image"], ["freeze", "h1"], ["heal"]])
def test_the_command_ends_with_one_line_and_code_two_when_not_root(monkeypatch, command):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(preflight, "_find", everything)
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "root" in result.stderr


@pytest.mark.parametrize("command", [["exec", "nope", "h1", "true"], ["enter", "nope", "true"]])
def test_using_a_lab_that_is_not_there_says_how_to_make_it(monkeypatch, tmp_path, command):
    monkeypatch.setenv("LANDLINE_LAB_STATE", str(tmp_path))
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert ".venv/bin/lab up --name nope" in result.stderr


def test_a_bad_lab_name_is_refused_before_anything_is_done(monkeypatch, tmp_path):
    monkeypatch.setenv("LANDLINE_LAB_STATE", str(tmp_path))
    result = CliRunner().invoke(main, ["up", "--name", "../etc"])
    assert result.exit_code == 2
    assert "bad lab name" in result.stderr
    assert not any(tmp_path.iterdir())
