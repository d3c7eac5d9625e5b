"""Connects to the master over ssh, with Fabric. No other module uses Fabric's Connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import paramiko  # type: ignore[import-untyped]
from fabric import Config, Connection

from sparkctl.errors import Error
from sparkctl.inventory import Host, host_port

CONNECT_TIMEOUT_S = 15
COMMAND_TIMEOUT_S = 180


class Connected(Protocol):
    """The part of ``fabric.Connection`` that the launcher uses."""

    user: str

    def run(self, command: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """The exit code and the output of a command that ran on the host."""

    exit_code: int
    output: str


def connect(host: Host) -> Connection:
    """A connection to the host, not yet opened. Host keys are checked unless the inventory disables that."""
    config = Config(runtime_ssh_path=host.ssh_config) if host.ssh_config else Config()
    keys: dict[str, Any] = {"key_filename": host.key_file} if host.key_file else {}
    connection = Connection(
        host.address,
        user=host.user,
        port=host.port,
        config=config,
        connect_timeout=CONNECT_TIMEOUT_S,
        connect_kwargs=keys,
    )
    if host.check_host_key:
        if known_hosts := host.known_hosts or connection.ssh_config.get("userknownhostsfile"):
            connection.client.load_host_keys(known_hosts)
        else:
            connection.client.load_system_host_keys()
        connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    return connection


def run(connection: Connected, host: Host, command: str) -> Ran:
    """Runs a command and returns its exit code and output. Raises ``Error`` if the connection fails."""
    try:
        done = connection.run(
            command, hide=True, warn=True, timeout=COMMAND_TIMEOUT_S, in_stream=False, pty=False
        )
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Error(
            f"{host.name}: no ssh to {host.user}@{host_port(host.address, host.port)}: {error}"
        ) from error
    return Ran(done.exited, done.stdout + done.stderr)
