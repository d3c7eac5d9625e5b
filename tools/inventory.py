"""The Ansible inventory, reduced to what the tools and the smoke tests need."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkctl.errors import Error, UsageError
from sparkctl.inventory import explained, host_port
from sparkctl.ssh import ssh_arguments
from sparkctl.templates import evaluated
from sparkctl.tunnel import Tunnel, tunnel_to
from tools.http_access import get, scheme

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
    way: Callable[[], Tunnel | None] = field(default=lambda: None, compare=False, repr=False)

    @property
    def unit(self) -> str:
        return f"landline-broker@{self.broker_id}.service"

    @property
    def url(self) -> str:
        return f"{scheme()}://{host_port(self.http_host or self.address, self.http_port)}"

    @property
    def tunnel(self) -> Tunnel | None:
        """The way there through the host's ssh; None if it is reached directly."""
        return self.way()

    def get(self, path: str, timeout_s: float) -> tuple[int, str]:
        """HTTP status and body of a GET. Raises OSError without an answer."""
        return get(self.url + path, timeout_s, self.tunnel)

    @property
    def bootstrap(self) -> str:
        return host_port(self.address, self.port)


class Inventory:
    """Groups and host variables of `ansible-inventory --list`."""

    def __init__(self, listing: Mapping[str, Any]) -> None:
        self._listing = listing
        self._tunnels: dict[tuple[str, str], Tunnel | None] = {}

    @classmethod
    def read(cls, source: str | None = None, *more: str) -> Inventory:
        """Runs `ansible-inventory` for `source` or the configured inventory, with `more` options. Raises
        `SystemExit` with its error.
        """
        argv = [str(Path(sys.executable).with_name("ansible-inventory")), "--list", *more]
        argv += ["-i", source] if source else []
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"inventory: ansible-inventory failed: {explained(done.stderr)}")
        return cls(evaluated(json.loads(done.stdout)))

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
        """The address of a host's ssh."""
        return str(self.variables(host).get("ansible_host", host))

    def service_address(self, host: str) -> str:
        """The address of a host's services, which other hosts use."""
        return str(self.variables(host).get("landline_address", self.address(host)))

    def ssh_arguments(self, host: str) -> list[str]:
        """The arguments of ssh for a host, as Ansible gives them."""
        return list(ssh_arguments(self.variables(host)))

    def tunnel(self, host: str, service: str) -> Tunnel | None:
        """The way to a host's services at the address `service`; None if they are reached directly."""
        key = (host, service)
        if key not in self._tunnels:
            try:
                self._tunnels[key] = tunnel_to(self.ssh_arguments(host), self.address(host), service)
            except (Error, UsageError) as error:
                raise SystemExit(f"inventory: {error}") from error
        return self._tunnels[key]

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
            address = str(variables.get("broker_advertised_host", self.service_address(host)))
            for k in range(count):
                yield Broker(
                    host=host,
                    broker_id=first + k,
                    address=address,
                    port=int(variables.get("broker_kafka_port", 9092)) + step * k,
                    http_port=int(variables.get("broker_http_port", 8092)) + step * k,
                    internal_port=internal + step * k if internal else 0,
                    http_host="" if http_host in _ANY_ADDRESS else http_host,
                    way=functools.partial(self.tunnel, host, address),
                )
