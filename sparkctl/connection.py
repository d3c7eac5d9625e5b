"""Connects to the master over ssh, with Fabric. No other module uses Fabric's Connection."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import paramiko  # type: ignore[import-untyped]
from fabric import Config, Connection
from invoke.exceptions import CommandTimedOut, ResponseNotAccepted
from invoke.watchers import FailingResponder

from sparkctl.commands import SUDO_PROMPT, as_spark
from sparkctl.errors import Error
from sparkctl.inventory import Host, SparkCluster, host_port
from sparkctl.ssh import resolve

CONNECT_TIMEOUT_S = 15
COMMAND_TIMEOUT_S = 180
_SUDO_ASKS = "sudo: a password is required"


class Connected(Protocol):
    """The part of ``fabric.Connection`` that the launcher uses."""

    user: str
    port: int
    config: Any

    def run(self, command: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command that ran on the host."""

    exit_code: int
    output: str


def with_fabrics(host: Host, options: Config) -> Host:
    """The host, reached by ssh as Fabric's own command line and files say: their keys are tried first, their
    configuration file is read in place of the inventory's, and their user and port count where it has none.
    """
    arguments = [word for key in _keys(options) for word in ("-i", key)]
    arguments += host.ssh_arguments
    if file := options._runtime_ssh_path:  # noqa: SLF001 - Fabric has no public name for it
        arguments += ["-F", str(file)]
    for name, option in (("user", "-l"), ("port", "-p")):
        if (value := options[name]) != Config.global_defaults()[name]:
            arguments += [option, str(value)]
    return replace(host, ssh_arguments=tuple(arguments))


def as_in_shorthand(host: Host, named: Connection) -> Host:
    """The host with the user and the port that ``-H user@host:port`` gives it: they take precedence over those of
    the inventory. What ``named`` has from Fabric's or ssh's files does not.
    """
    arguments: list[str] = []
    for name, option in (("user", "-l"), ("port", "-p")):
        value = getattr(named, name)
        if str(value) not in {str(named.config[name]), str(named.ssh_config.get(name))}:
            arguments += [option, str(value)]
    return replace(host, ssh_arguments=(*arguments, *host.ssh_arguments))


def _keys(options: Config) -> list[str]:
    keys = options.connect_kwargs.get("key_filename") or []
    return [keys] if isinstance(keys, str) else list(keys)


def connect(host: Host, options: Config | None = None) -> Connection:
    """A connection to the host, not yet opened. User, port, keys, bastion and the check of host keys are those
    that ssh would use.

    ``options``: those of Fabric's own command line and files. They take precedence over the inventory.
    """
    said: dict[str, Any] = {}
    file = None
    if options is not None:
        host = with_fabrics(host, options)
        # Fabric has no public names for what its command line said.
        said, file = options._overrides, options._runtime_path  # noqa: SLF001
    login = resolve(host.ssh_arguments, host.address)
    config = Config(overrides={**said, "load_ssh_configs": False}, runtime_path=file)
    known = dict(config.connect_kwargs)
    timeout = known.pop("timeout", None) or config.timeouts.connect or CONNECT_TIMEOUT_S
    known.pop("key_filename", None)  # Fabric puts its own keys before those of the argument
    keys = [each for each in login.identity_files if Path(each).exists() and each not in _keys(config)]
    connection = Connection(
        login.address,
        user=login.user,
        port=login.port,
        config=config,
        gateway=login.proxy or None,
        connect_timeout=timeout,
        connect_kwargs={**known, **({"key_filename": keys} if keys else {})},
    )
    if login.checks_host_key:
        for known_hosts in login.known_hosts:
            if Path(known_hosts).exists():
                connection.client.load_host_keys(known_hosts)
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    return connection


def run_as_spark(
    connection: Connected, cluster: SparkCluster, command: str, timeout_s: float = COMMAND_TIMEOUT_S
) -> Ran:
    """Runs a command as Spark's user on the master's host, and returns its exit code and output.

    Raises ``Error`` if the connection fails, if sudo refuses, or if the command takes longer than the timeout.
    """
    host, password = cluster.master, connection.config.sudo.password
    answers = [FailingResponder(re.escape(SUDO_PROMPT), f"{password}\n", "Sorry, try again")]
    where = f"{connection.user}@{host_port(host.address, connection.port)}"
    try:
        done = connection.run(
            as_spark(cluster, connection.user, command, asks=password is not None),
            hide=True,
            warn=True,
            timeout=timeout_s,
            in_stream=False,
            pty=False,
            watchers=answers if password is not None else [],
        )
    except CommandTimedOut as error:
        raise Error(f"{host.name}: no answer from {where} within {timeout_s:.0f} s") from error
    except ResponseNotAccepted as error:
        raise Error(f"{host.name}: sudo on {where} does not accept the password") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Error(f"{host.name}: no ssh to {where}: {error}") from error
    if password is None and done.exited and _SUDO_ASKS in done.stderr:
        hint = "give --prompt-for-sudo-password, or sudo: {password: ...} in ~/.fabric.yml"
        raise Error(f"{host.name}: sudo on {where} wants a password: {hint}")
    return Ran(done.exited, done.stdout + done.stderr.replace(SUDO_PROMPT, ""))
