"""The sample inventory, filled in for a lab's hosts as operators have them, and deploys by it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import yaml

from lab import Lab
from sparkctl.inventory import host_port
from tests.support.deploying import ROOT, make
from tests.support.lab_cluster import BROKER_PORT
from tests.support.next_release import NEXT, VERSION
from tests.support.operators_hosts import DISKS, SSH_PORT, service_address, ssh_options

_EXAMPLE_ADDRESS = re.compile(r"192\.0\.2\.\d+")
_PROCESS = "systemctl show --property=MainPID --value 'landline-broker@*'"


def filled_in(lab: Lab, directory: Path, archives: Path) -> Path:
    """The hosts.yml of a copy: what an operator does with an editor, and what stands in an operator's ~/.ssh/config."""
    copy = directory / "mine"
    shutil.copytree(ROOT / "inventory/sample", copy)
    hosts = copy / "hosts.yml"
    examples = dict.fromkeys(_EXAMPLE_ADDRESS.findall(hosts.read_text()))
    put_in = {example: host.address for example, host in zip(examples, lab.hosts, strict=True)}
    text = _EXAMPLE_ADDRESS.sub(lambda found: put_in[found[0]], hosts.read_text())
    for host in lab.hosts:
        line = f"          ansible_host: {host.address}\n"
        assert text.count(line) == 1
        text = text.replace(line, f"{line}          landline_address: {service_address(host)}\n")
    begin, end = text.index("    # spark_master:"), text.index("    # A host with Prometheus")
    hosts.write_text(text[:begin] + text[begin:end].replace("    # ", "    ") + text[end:])
    settings = copy / "group_vars/all.yml"
    assert f"\nlandline_version: {VERSION}\n" in settings.read_text()
    more = {
        "ansible_port": SSH_PORT,
        "ansible_ssh_private_key_file": str(lab.files.key),
        "ansible_ssh_common_args": ssh_options(lab, directory),
        "broker_archive_dir": str(archives),
        "broker_data_dirs": list(DISKS.values()),
        "spark_worker_memory": "512m",
    }
    settings.write_text(settings.read_text() + yaml.safe_dump(more, width=1000))
    return hosts


def bootstrap_servers(lab: Lab) -> str:
    """Where its clients begin."""
    return ",".join(host_port(service_address(host), BROKER_PORT) for host in lab.hosts)


def make_with(
    inventory: Path,
    verb: str,
    *more: str,
    arguments: str = "",
    check: bool = True,
    quick: bool = True,
    answer: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """`make` of a verb with this inventory and these arguments of Ansible's."""
    named = f"INVENTORY={os.path.relpath(inventory, ROOT)}"
    given = [f"ANSIBLE_ARGS={arguments}"] if arguments else []
    return make(verb, named, *given, *more, check=check, quick=quick, answer=answer)


def deploy(inventory: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Deploys the brokers."""
    return make_with(inventory, "deploy", arguments=" ".join(["--tags broker", *arguments]), check=check)


def with_next(
    inventory: Path, verb: str, *more: str, settings: str = "", tags: str = "broker", check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Deploys, plans or applies the next release's brokers."""
    arguments = f"--tags {tags} -e landline_version={NEXT} {settings}"
    return make_with(inventory, verb, *more, arguments=arguments, check=check)


def runs(lab: Lab) -> list[str]:
    """The release that each host's commands and brokers are of, by what they say themselves."""
    said = "readlink /opt/landline/current; /opt/landline/current/venv/bin/landline --version; "
    process = f"tr '\\0' ' ' </proc/$({_PROCESS})/cmdline"
    return [lab.run(host.name, said + process).stdout for host in lab.hosts]


def assert_all_run(lab: Lab, version: str) -> None:
    """Checks that the commands and the brokers of all hosts are of a release."""
    for said in runs(lab):
        assert said.startswith(f"releases/{version}\n")
        assert f" {version}\n" in said, "the command"
        assert f"/releases/{version}/" in said, "the process"


def main_pids(lab: Lab) -> dict[int, str]:
    """The brokers' processes, by their ids."""
    return {
        number: lab.run(host.name, _PROCESS).stdout.strip() for number, host in enumerate(lab.hosts, start=1)
    }
