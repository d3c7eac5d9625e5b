"""The command line's faults: one command for each method of `Faults`, with its docstring as help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from lab import naming, preflight
from lab.faults import Faults
from lab.lab import Lab
from lab.links import Direction
from lab.state import NAME_ENV

_ON_ONE_HOST: tuple[Callable[[Faults, str], object], ...] = (
    Faults.power_off,
    Faults.boot,
    Faults.reboot,
    Faults.freeze,
    Faults.thaw,
    Faults.fill_disk,
    Faults.free_disk,
    Faults.freeze_disk,
    Faults.thaw_disk,
    Faults.read_only_disk,
    Faults.writable_disk,
)


def name_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option that selects the lab."""
    option = click.option(
        "--name", envvar=NAME_ENV, default=naming.DEFAULT_LAB, show_default=True, help="The lab's name."
    )
    return option(function)


def fault_commands() -> list[click.Command]:
    """All fault commands, to be added to the main command group."""
    return [
        _power_loss,
        *(_on_one_host(method) for method in _ON_ONE_HOST),
        _throttle,
        _cut,
        _lose,
        _slow,
        _heal,
    ]


def _on_one_host(method: Callable[[Faults, str], object]) -> click.Command:
    @click.command(method.__name__.replace("_", "-"), help=inspect.getdoc(method))
    @name_option
    @click.argument("host")
    def command(name: str, host: str) -> None:
        method(_faults(name), host)

    return command


@click.command("power-loss", help=inspect.getdoc(Faults.power_loss))
@name_option
@click.argument("host")
@click.option("--lose-unsynced", is_flag=True, help="The data disk loses what was not synced.")
def _power_loss(name: str, host: str, lose_unsynced: bool) -> None:
    _faults(name).power_loss(host, lose_unsynced=lose_unsynced)


@click.command("throttle", help=inspect.getdoc(Faults.throttle))
@name_option
@click.argument("host")
@click.option("--percent", type=float, required=True)
def _throttle(name: str, host: str, percent: float) -> None:
    _faults(name).throttle(host, percent)


@click.command("cut", help=inspect.getdoc(Faults.cut))
@name_option
@click.argument("host")
@click.option("--peer", metavar="HOST", help="Only between these two; `controller` is this machine.")
@click.option(
    "--direction", type=click.Choice([str(d) for d in Direction]), default="both", show_default=True
)
def _cut(name: str, host: str, peer: str | None, direction: str) -> None:
    _faults(name).cut(host, peer, direction)


@click.command("lose", help=inspect.getdoc(Faults.lose))
@name_option
@click.argument("host")
@click.option("--percent", type=float, required=True)
def _lose(name: str, host: str, percent: float) -> None:
    _faults(name).lose(host, percent)


@click.command("slow", help=inspect.getdoc(Faults.slow))
@name_option
@click.argument("host")
@click.option("--kbit", type=float, required=True)
def _slow(name: str, host: str, kbit: float) -> None:
    _faults(name).slow(host, kbit)


@click.command("heal", help=inspect.getdoc(Faults.heal))
@name_option
@click.argument("host", required=False)
@click.option("--peer", metavar="HOST", help="Only what was cut between these two.")
def _heal(name: str, host: str | None, peer: str | None) -> None:
    _faults(name).heal(host, peer)


def _faults(name: str) -> Faults:
    preflight.check()
    return Lab(name).faults
