"""Connects to the master over ssh, with Fabric. No other module uses Fabric's Connection."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import paramiko  # type: ignore[import-untyped]
from fabric import Config, Connection
from invoke.exceptions import CommandTimedOut

from sparkctl.errors import Error
from sparkctl.inventory import Host, host_port
from sparkctl.ssh import resolve

CONNECT_TIMEOUT_S = 15
COMMAND_TIMEOUT_S = 180


class Connected(Protocol):
    """The part of ``fabric.Connection`` that the launcher uses."""

    user: str
    port: int

    def run(self, command: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command that ran on the host."""

    exit_code: int
    output: str


def connect(host: Host) -> Connection:
    """A connection to the host, not yet opened. User, port, keys, bastion and the check of host keys are those
    that ssh would use.
    """
    login = resolve(host.ssh_arguments, host.address)
    keys = [each for each in login.identity_files if Path(each).exists()]
    connection = Connection(
        login.address,
        user=login.user,
        port=login.port,
        config=Config(overrides={"load_ssh_configs": False}),
        gateway=login.proxy or None,
        connect_timeout=CONNECT_TIMEOUT_S,
        connect_kwargs={"key_filename": keys} if keys else {},
    )
    if login.checks_host_key:
        for known_hosts in login.known_hosts:
            if Path(known_hosts).exists():
                connection.client.load_host_keys(known_hosts)
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    return connection


def run(connection: Connected, host: Host, command: str) -> Ran:
    """Runs a command and returns its exit code and output. Raises ``Error`` if the connection fails."""
    try:
        done = connection.run(
            command, hide=True, warn=True, timeout=COMMAND_TIMEOUT_S, in_stream=False, pty=False
        )
    except CommandTimedOut as error:
        raise Error(f"{host.name}: no end after {COMMAND_TIMEOUT_S} s") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Error(
            f"{host.name}: no ssh to {connection.user}@{host_port(host.address, connection.port)}: {error}"
        ) from error
    return Ran(done.exited, done.stdout + done.stderr)
