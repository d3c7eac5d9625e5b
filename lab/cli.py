"""The command line: `.venv/bin/lab --help`. An error is one line on stderr; its class has the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from lab import image, naming, preflight
from lab.cli_faults import fault_commands, name_option
from lab.errors import LabError
from lab.lab import HostState, Lab, all_labs
from lab.state import NAME_ENV, Bind, LabFiles, state_root

_COLOUR = {HostState.RUNNING: "green", HostState.FROZEN: "cyan", HostState.OFF: "red"}
_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


class _Group(click.Group):
    """A command group that turns the lab's errors into one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except LabError as error:
            click.echo(f"lab: {error}", err=True)
            sys.exit(error.exit_code)


def _report(line: str) -> None:
    click.echo(f"lab: {line}", err=True)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Real systemd hosts on this machine: make them, use them, break them, destroy them."""


suite_option = click.option(
    "--image",
    "suite",
    type=click.Choice(image.SUITES),
    help=f"The hosts' Debian [default: {image.SUITES[0]}].",
)


@main.command("image")
@click.option("--prune", is_flag=True, help="Also remove images of former inputs that no lab uses.")
@suite_option
def image_command(prune: bool, suite: str | None) -> None:
    """Build the hosts' base image, unless it is there."""
    preflight.check()
    click.echo(image.ensure(_report, image.suite_of(suite)))
    if prune:
        for removed in image.remove_unused(_images_in_use()):
            _report(f"removed {removed}")


def _images_in_use() -> set[str]:
    states = [LabFiles(state_root(), name).load() for name in all_labs()]
    return {state.image for state in states if state is not None}


@main.command()
@name_option
@click.option("--hosts", type=click.IntRange(1, naming.MAX_HOSTS), help="How many [default: 3, or as it is].")
@click.option("--bind-ro", "binds", multiple=True, metavar="SRC:DST", help="Show a directory to every host.")
@click.option(
    "--bind", "shared", multiple=True, metavar="SRC:DST", help="The same, and every host may write there."
)
@click.option("--data-disk-mb", type=click.IntRange(0), help="A disk of its own at /var/lib/landline.")
@suite_option
def up(
    *,
    name: str,
    hosts: int | None,
    binds: tuple[str, ...],
    shared: tuple[str, ...],
    data_disk_mb: int | None,
    suite: str | None,
) -> None:
    """Make a lab, or add hosts to it, and boot what is off."""
    lab = Lab(name)
    given = [Bind.parse(bind) for bind in binds] + [Bind.parse(bind, writable=True) for bind in shared]
    booted = lab.up(hosts, binds=given or None, data_disk_mb=data_disk_mb, suite=suite, report=_report)
    if not booted:
        _report(f"lab {name} is up already, nothing changed")
    _print_status([lab])


@main.command()
@name_option
@click.option("--all", "everything", is_flag=True, help="Every lab of this state directory.")
def down(name: str, everything: bool) -> None:
    """Destroy a lab: no process, mount, cgroup, namespace or file of it is left."""
    preflight.check()
    for each in all_labs() if everything else [name]:
        _report(f"lab {each} is gone" if Lab(each).down() else f"there is no lab {each}, nothing changed")


@main.command()
@click.option("--name", envvar=NAME_ENV, help="The lab's name [default: all].")
def status(name: str | None) -> None:
    """Show the hosts, what they do and what is broken."""
    labs = [Lab(name)] if name else [Lab(each) for each in all_labs()]
    for broken in [lab.name for lab in labs if not name and not lab.exists]:
        _report(f"lab {broken} lost its state: remove it with `.venv/bin/lab down --name {broken}`")
        labs = [lab for lab in labs if lab.name != broken]
    if not labs:
        _report("there is no lab: make one with `.venv/bin/lab up`")
        return
    _print_status(labs)


def _print_status(labs: Sequence[Lab]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("lab", "host", "address", "state", "leader", "faults"):
        table.add_column(column, no_wrap=column != "faults")
    for lab in labs:
        for row in lab.status():
            state = f"[{_COLOUR[row.state]}]{row.state}[/]"
            leader = str(row.leader or "-")
            faults = f"[yellow]{', '.join(row.faults)}[/]" if row.faults else ""
            table.add_row(lab.name, row.host.name, row.host.address, state, leader, faults)
    Console().print(table)


@main.command("exec", context_settings=_PASS_ON)
@click.option("--console", is_flag=True, help="Beside the network, for a host that is cut off.")
@click.argument("name")
@click.argument("host")
@click.argument("command", nargs=-1, required=True)
def exec_command(console: bool, name: str, host: str, command: tuple[str, ...]) -> None:
    """Run COMMAND as root on a host; exits with its code."""
    lab, argv = Lab(name), _without_dashes(command)
    lab.check_up()
    _become(lab.console_argv(host, argv) if console else lab.enter_argv(lab.ssh_argv(host, argv)))


@main.command("shell")
@click.argument("name")
@click.argument("host")
def shell_command(name: str, host: str) -> None:
    """Open a root shell on a host."""
    lab = Lab(name)
    lab.check_up()
    _become(lab.enter_argv(lab.ssh_argv(host)))


@main.command(context_settings=_PASS_ON)
@click.argument("name")
@click.argument("host")
@click.argument("options", nargs=-1)
def journal(name: str, host: str, options: tuple[str, ...]) -> None:
    """Read a host's journal, also when it is off; OPTIONS are journalctl's, for example -u UNIT."""
    _become(Lab(name).journal_argv(host, options))


@main.command(context_settings=_PASS_ON)
@click.argument("name")
@click.argument("command", nargs=-1, required=True)
def enter(name: str, command: tuple[str, ...]) -> None:
    """Run COMMAND on this machine, inside the lab's network; exits with its code.

    It finds the commands of .venv, and what it asks of an inventory is this lab's.
    """
    lab = Lab(name)
    lab.check_up()
    os.environ[NAME_ENV] = name
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    os.environ["PATH"] = os.pathsep.join(programs)
    _become(lab.enter_argv(_without_dashes(command)))


def _without_dashes(command: Sequence[str]) -> list[str]:
    """The command without the `--` that may precede it."""
    return list(command[1:] if command[0] == "--" else command)


def _become(argv: Sequence[str]) -> None:
    """Replace this process with that program, so that it gets our signals, terminal and exit code."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(argv[0], list(argv))  # noqa: S606 (a list, no shell)


for _command in fault_commands():
    main.add_command(_command)
