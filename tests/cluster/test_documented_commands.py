"""Every command of README, CONTRIBUTING and docs/, and every line that the cluster prints to try next, is run.

As written, in the order of its document, with the environment of a shell that just logged in, against the
cluster of ``LANDLINE_LAB`` (`make docs-test` brings one up from nothing). What cannot be is in
`tests.support.documented_plan`, with a reason.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from lab import Lab
from rig import kafka_dist
from tests.support.documented import Command, commands_of, documents
from tests.support.documented_plan import INSTEAD, KAFKAS, VERBS, running
from tests.support.documented_shell import ROOT, Shell
from tests.support.lab_cluster import LAB_ENV, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

LEFT_BY_JOBS = ("journal_stream", "orders", "orders.checkpoint")
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")
COMMANDS = {
    path.relative_to(ROOT).as_posix(): list(commands_of(path.relative_to(ROOT).as_posix(), path.read_text()))
    for path in documents(ROOT)
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_cluster():
        made = Shell(Lab(os.environ[LAB_ENV]), tmp_path_factory.mktemp("documented"))
        write_inventory(made.lab, made.scratch / "mine")
        for left in LEFT_BY_JOBS:  # by a run before this one, on the same cluster
            shutil.rmtree(Path("/srv/landline", made.lab.name, left), ignore_errors=True)
        yield made


def write_inventory(lab: Lab, directory: Path) -> None:
    """The sample, copied and with hosts put in, as README says: the lab's."""
    shutil.copytree(ROOT / "inventory/sample", directory)
    listing = yaml.safe_load((directory / "hosts.yml").read_text())
    groups: dict[str, Any] = listing["all"]["children"]
    assert list(groups) == ["brokers", "zookeeper"], "Spark's groups are a choice: they need an archive"
    ssh = {
        "ansible_ssh_private_key_file": str(lab.files.key),
        "ansible_ssh_common_args": f"-F {lab.files.ssh_config}",
        "ansible_user": "root",
    }
    for host, variables in zip(lab.hosts, groups["brokers"]["hosts"].values(), strict=True):
        variables |= {"ansible_host": host.address, **ssh}
    (directory / "hosts.yml").write_text(yaml.safe_dump(listing))


# Its job reads and writes for two minutes.
LONG = {"docs/lake.md"}


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=pytest.mark.day_two if file in LONG else ())
        for file, commands in COMMANDS.items()
        if commands
    ],
)
def test_every_command_of_a_document_works(file: str, shell: Shell) -> None:
    with_those_that_go_on(shell, COMMANDS[file])


def with_those_that_go_on(shell: Shell, commands: list[Command]) -> None:
    """Runs commands in order; a broker that goes on until ^C serves the later ones, a job is ended when it works."""
    with ExitStack() as stack:
        for command in commands:
            sign = running(command.bare)
            if sign is None or command.bare in INSTEAD:
                tried(shell, command)
                continue
            kept = shell.kept_running(command.text, sign.format(lab=shell.lab.name))
            if sign.startswith("/"):
                with kept:
                    pass
            else:
                stack.enter_context(kept)


def tried(shell: Shell, command: Command) -> None:
    words = command.bare.split()
    instead = INSTEAD.get(command.bare)
    verb = VERBS.get(words[1]) if words[0] == "make" else None
    print(
        f"{command}" + (f"\n  not as written, for it {(instead or verb).reason}" if instead or verb else "")
    )
    if instead is not None:
        printed = shell.run(instead.command)
        if instead.is_help:
            assert_known(command.bare, printed)
    elif verb is not None:
        shell.run(re.sub(r"^make", "make -n", command.text))
        if options := _OPTION.findall(command.bare.replace('"', " ").replace("=", " ")):
            assert verb.program, f"{command}: which program has {options}? say so in VERBS"
            assert_known(command.bare, shell.run(verb.program))
    elif words[0] in KAFKAS:
        done = kafka_dist.run_tool(KAFKAS[words[0]], "--help")
        assert_known(command.bare, done.stdout + done.stderr)
    else:
        shell.run(command.text)


def assert_known(bare: str, printed: str) -> None:
    """Every option of the command is in its help."""
    for option in _OPTION.findall(re.sub("[\"'=]", " ", bare)):
        assert re.search(rf"{option}(?![a-z-])", printed), f"{bare}\n{option} is not in its help:\n{printed}"


def test_every_line_that_the_cluster_prints_to_try_next_works(shell: Shell) -> None:
    printed = shell.run(f"make status LAB={shell.lab.name}")
    hints = re.findall(r"^│ ((?:\.venv|make|curl)\S* .*?) {3}# .*│$", printed, re.MULTILINE)
    assert len(hints) == 3, printed
    for hint in hints:
        assert shell.run(hint).strip(), hint


def test_every_line_that_status_prints_for_real_hosts_works(shell: Shell) -> None:
    printed = shell.run("make status INVENTORY=inventory/mine/hosts.yml")
    hints = re.findall(r"^│ (.*?) {3}# .*│$", printed, re.MULTILINE)
    assert len(hints) == 2, printed
    for hint in hints:
        assert shell.run(hint.replace("make deploy", "make -n deploy")).strip(), hint


def test_what_standalone_prints_is_where_it_answers(shell: Shell) -> None:
    with shell.kept_running(".venv/bin/landline standalone --port 0", "ready on") as output:
        (found,) = re.findall(r"ready on (\S+) .* Its state: (http://\S+)\n", output.read_text())
        assert "broker 0 at" in shell.run(f".venv/bin/topics list -b {found[0]}")
        with urlopen(found[1]) as status:
            assert b"Running" in status.read()
