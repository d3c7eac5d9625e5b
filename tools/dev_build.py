"""Builds the working tree for a deploy to an inventory's hosts, if that is what they get (landline_version: dev).

    python -m tools.dev_build [--pure | --compiled] -- ANSIBLE_ARGS

A release comes from its archives, or is on the hosts already: going back to it needs no build, and so no network and no
compiler. What the hosts get says `ansible-inventory`, with those arguments of the deploy that change its answer.
`tools.wheelhouse` builds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from tools.inventory import Inventory
from tools.wheelhouse import build_for_hosts

DEV = "dev"


def inventory_options(arguments: Sequence[str]) -> list[str]:
    """Returns those arguments of ansible-playbook by which an inventory and its variables are read."""
    if not arguments:
        return []
    # Its own parser: in `-Ce a=b` there is an -e too.
    from ansible.cli.playbook import PlaybookCLI

    command = PlaybookCLI(["ansible-playbook"])
    command.init_parser()
    given = command.parser.parse_args([*arguments, "deploy.yml"])
    return [
        *(f"--inventory={each}" for each in given.inventory or []),
        *(f"--extra-vars={each}" for each in given.extra_vars or []),
        *(f"--vault-id={each}" for each in given.vault_ids or []),
        *(f"--vault-password-file={each}" for each in given.vault_password_files or []),
        *(["--ask-vault-password"] if given.ask_vault_pass else []),
    ]


def versions(inventory: Inventory) -> dict[str, str]:
    """Returns the version that each host with brokers gets, as the role broker reads it."""
    return {host: _version(inventory.variables(host)) for host in inventory.hosts("brokers")}


def _version(variables: Mapping[str, object]) -> str:
    return str(variables.get("broker_version", variables.get("landline_version", DEV)))


def is_built(version: str) -> bool:
    """Whether a build is needed: also for a template that only the deploy can evaluate."""
    return version == DEV or "{{" in version or "{%" in version


@click.command()
@click.option(
    "--compiled/--pure",
    default=None,
    help="With compiled code for hosts like this one, or without: with it where there is a C compiler.",
)
@click.argument("arguments", nargs=-1)
def main(compiled: bool | None, arguments: tuple[str, ...]) -> None:
    """Build the working tree if a deploy with these ARGUMENTS of ansible-playbook takes it."""
    found = set(versions(Inventory.read(None, *inventory_options(arguments))).values())
    if not any(map(is_built, found)):
        what = f"release {', '.join(sorted(found))} is deployed" if found else "the inventory has no brokers"
        click.echo(f"wheelhouse: nothing is built: {what}", err=True)
        return
    build_for_hosts(compiled)


if __name__ == "__main__":
    main()
