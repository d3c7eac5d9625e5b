#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reports to which addresses this host cannot connect. Sends nothing, changes nothing."""

from __future__ import annotations

DOCUMENTATION = """
module: broker_reach_info
short_description: Which addresses a host cannot connect to
description:
  - Reports to which addresses this host cannot connect. Sends nothing, changes nothing.
author: The Landline authors (!UNKNOWN)
options:
  addresses:
    description: What to connect to, each as host:port.
    type: list
    elements: str
    required: true
  timeout_s:
    description: Seconds until who does not answer counts as not reached; what was lost is sent again after one.
    type: float
    default: 4
  within_s:
    description: Seconds in which it is tried again; a broker may be restarted at this moment.
    type: float
    default: 15
"""
EXAMPLES = """
- name: Look whether the other brokers are reached from here
  landline.cluster.broker_reach_info:
    addresses: ["192.0.2.12:9091", "192.0.2.13:9091"]
"""
RETURN = """
unreached:
  description: By address, why there was no connection.
  type: dict
  returned: always
"""

import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule

AT_ONCE = 64
PAUSE_S = 0.5


def attempt(address: str, timeout_s: float) -> str:
    """Returns why the connection failed, empty when it succeeded."""
    host, _unused, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    except UnicodeError as error:  # not a valid name
        return str(error)
    return ""


def why_unreached(address: str, timeout_s: float, within_s: float) -> str:
    """Returns why no connection succeeded within this time, empty when one did."""
    deadline = time.monotonic() + within_s
    while (reason := attempt(address, timeout_s)) and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    return reason


def unreached(addresses: Iterable[str], timeout_s: float, within_s: float) -> dict[str, str]:
    """Returns the addresses that cannot be connected to, each with the reason."""
    wanted = list(dict.fromkeys(addresses))
    with ThreadPoolExecutor(min(len(wanted), AT_ONCE) or 1) as pool:
        reasons = pool.map(lambda address: why_unreached(address, timeout_s, within_s), wanted)
        return {address: reason for address, reason in zip(wanted, reasons, strict=True) if reason}


def main() -> None:
    module = AnsibleModule(
        {
            "addresses": {"type": "list", "elements": "str", "required": True},
            "timeout_s": {"type": "float", "default": 4.0},
            "within_s": {"type": "float", "default": 15.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    module.exit_json(
        changed=False, unreached=unreached(params["addresses"], params["timeout_s"], params["within_s"])
    )


if __name__ == "__main__":
    main()
