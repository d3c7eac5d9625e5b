"""The settings for clients that the role `broker` writes on its hosts (client.properties), and how to get them."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.client_config import parsed
from tools.inventory import Inventory

# The file of a client on this machine.
CLIENT_ENV = "LANDLINE_CLIENT_CONFIG"
TIMEOUT_S = 20
# The exit code of ssh itself.
_NOT_REACHED = 255
_OPTION = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_QUOTED = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class ClientFile:
    """A client's settings by Kafka's keys. They may have a password, and are not shown."""

    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> ClientFile:
        return cls(parsed(text))

    @property
    def protocol(self) -> str:
        return self.values.get("security.protocol", "PLAINTEXT")

    @property
    def bootstrap(self) -> str:
        return self.values.get("bootstrap.servers", "")

    def librdkafka(self) -> dict[str, str]:
        """The settings with librdkafka's names, for the keys that the role writes."""
        options = dict(_OPTION.findall(self.values.get("sasl.jaas.config", "")))
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.protocol,
            "ssl.ca.pem": self.values.get("ssl.truststore.certificates", ""),
            "sasl.mechanisms": self.values.get("sasl.mechanism", ""),
            "sasl.username": _QUOTED.sub(r"\1", options.get("username", "")),
            "sasl.password": _QUOTED.sub(r"\1", options.get("password", "")),
        }
        return {key: value for key, value in found.items() if value}


def fetch(inventory: Inventory) -> str:
    """The file's text, from the first broker host that is reached, as root; empty if there is none there, or no host
    is reached.
    """
    found = (_of_host(inventory, host) for host in inventory.hosts("brokers"))
    return next((text for text in found if text is not None), "")


def _of_host(inventory: Inventory, host: str) -> str | None:
    """None if the host is not reached."""
    variables = inventory.variables(host)
    directory = variables.get("broker_config_dir", variables.get("common_config_dir", "/etc/landline"))
    path = shlex.quote(f"{directory}/client.properties")
    command = [
        *("ssh", *inventory.ssh_arguments(host), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
        *("--", inventory.address(host), f"cat {path} 2>/dev/null || sudo -n cat {path}"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode == _NOT_REACHED:
        return None
    return done.stdout if done.returncode == 0 else ""
