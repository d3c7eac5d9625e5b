"""An inventory with a file in a vault is read by all that read one, if the password is named as Ansible wants it."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparkctl.errors import UsageError
from sparkctl.inventory import read_listing
from tests.smoke import conftest
from tools.inventory import Inventory

NAMED = "Name the file with the vault's password in ANSIBLE_VAULT_PASSWORD_FILE"


@pytest.fixture
def inventory(tmp_path, monkeypatch):
    """The inventory, and the file with the password, which nothing names yet."""
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    monkeypatch.setenv("ANSIBLE_HOME", str(tmp_path / "ansible"))
    hosts, variables, password = (tmp_path / name for name in ("hosts.yml", "group_vars/all.yml", "password"))
    variables.parent.mkdir()
    hosts.write_text("brokers: {hosts: {h1: {}}}\n")
    variables.write_text("broker_kafka_port: 9192\n")
    password.write_text("open sesame\n")
    program = Path(sys.executable).with_name("ansible-vault")
    subprocess.run([program, "encrypt", f"--vault-password-file={password}", variables], check=True)
    return str(hosts), str(password)


def test_it_is_read_with_the_password(inventory, monkeypatch):
    hosts, password = inventory
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", password)
    assert Inventory.read(hosts).variables("h1")["broker_kafka_port"] == 9192
    assert read_listing(hosts)["_meta"]["hostvars"]["h1"]["broker_kafka_port"] == 9192


def test_without_the_password_it_is_said_where_to_name_it(inventory, monkeypatch):
    hosts, _password = inventory
    with pytest.raises(SystemExit, match=NAMED):
        Inventory.read(hosts)
    with pytest.raises(UsageError, match=NAMED):
        read_listing(hosts)
    monkeypatch.setenv("ANSIBLE_INVENTORY", hosts)
    conftest.inventory.cache_clear()
    with pytest.raises(pytest.exit.Exception, match=NAMED):
        conftest.inventory()
