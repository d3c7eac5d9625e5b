"""The Ansible inventory, reduced to what the tools and the smoke tests need."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkctl.inventory import host_port
from tools.http_access import scheme

ROOT = Path(__file__).resolve().parent.parent
# Bootstrap servers that jobs and tools use by default; takes precedence over the inventory.
BOOTSTRAP_ENV = "LANDLINE_BOOTSTRAP_SERVERS"
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class Broker:
    """One broker, as the role `broker` sets it up on its host."""

    host: str
    broker_id: int
    address: str
    port: int
    http_port: int
    internal_port: int
    """The port of the listener between brokers; 0 where there is none."""
    http_host: str = ""
    """The address that HTTP listens on; empty where that is `address`, or all."""

    @property
    def unit(self) -> str:
        return f"landline-broker@{self.broker_id}.service"

    @property
    def url(self) -> str:
        return f"{scheme()}://{host_port(self.http_host or self.address, self.http_port)}"

    @property
    def bootstrap(self) -> str:
        return host_port(self.address, self.port)


class Inventory:
    """Groups and host variables of `ansible-inventory --list`. Only plain values: templates are
    not evaluated.
    """

    def __init__(self, listing: Mapping[str, Any]) -> None:
        self._listing = listing

    @classmethod
    def read(cls, source: str | None = None) -> Inventory:
        """Runs `ansible-inventory` for `source` or the configured inventory. Raises `SystemExit` with
        its error.
        """
        argv = [str(Path(sys.executable).with_name("ansible-inventory")), "--list"]
        argv += ["-i", source] if source else []
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"inventory: ansible-inventory failed: {done.stderr.strip()}")
        return cls(json.loads(done.stdout))

    def hosts(self, group: str) -> list[str]:
        """Names of the hosts of a group and of its child groups; empty when there is no such group."""
        found = self._listing.get(group, {})
        own = list(found.get("hosts", []))
        return own + [host for child in found.get("children", []) for host in self.hosts(child)]

    def variables(self, host: str) -> Mapping[str, Any]:
        """A host's variables."""
        found: Mapping[str, Any] = self._listing["_meta"]["hostvars"].get(host, {})
        return found

    def address(self, host: str) -> str:
        """The address at which a host is reached."""
        return str(self.variables(host).get("ansible_host", host))

    def ssh_arguments(self, host: str) -> list[str]:
        """The ssh options for a host."""
        variables = self.variables(host)
        options = shlex.split(variables.get("ansible_ssh_common_args", ""))
        key = variables.get("ansible_ssh_private_key_file")
        return [*options, *(["-i", key] if key else [])]

    def brokers(self) -> list[Broker]:
        """All brokers, by host and id, with the ids and ports that the role `broker` assigns."""
        return list(self._brokers())

    def bootstrap(self) -> str:
        """The bootstrap servers for clients: every host's first broker; empty when there is none."""
        first = {broker.host: broker.bootstrap for broker in reversed(self.brokers())}
        return ",".join(reversed(first.values()))

    def _brokers(self) -> Iterator[Broker]:
        for index, host in enumerate(self.hosts("brokers")):
            variables = self.variables(host)
            count = int(variables.get("broker_count", variables.get("brokers_per_host", 1)))
            first = int(variables.get("broker_first_id", index * count + 1))
            step = int(variables.get("broker_port_step", 10))
            internal = int(variables.get("broker_internal_port", 9091))
            http_host = str(variables.get("broker_http_host", ""))
            for k in range(count):
                yield Broker(
                    host=host,
                    broker_id=first + k,
                    address=str(variables.get("broker_advertised_host", self.address(host))),
                    port=int(variables.get("broker_kafka_port", 9092)) + step * k,
                    http_port=int(variables.get("broker_http_port", 8092)) + step * k,
                    internal_port=internal + step * k if internal else 0,
                    http_host="" if http_host in _ANY_ADDRESS else http_host,
                )
