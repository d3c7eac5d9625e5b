"""Reaches the master over ssh, by Fabric. The only module that knows Fabric's Connection."""

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
    """What the launcher needs of a ``fabric.Connection``."""

    user: str

    def run(self, command: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did on the host."""

    exit_code: int
    output: str


def connect(host: Host) -> Connection:
    """A connection to the host, not opened yet. Host keys are checked unless the inventory says otherwise."""
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
    """Runs a command; its exit code is a result, a connection that fails is an ``Error``."""
    try:
        done = connection.run(
            command, hide=True, warn=True, timeout=COMMAND_TIMEOUT_S, in_stream=False, pty=False
        )
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise Error(
            f"{host.name}: no ssh to {host.user}@{host_port(host.address, host.port)}: {error}"
        ) from error
    return Ran(done.exited, done.stdout + done.stderr)
