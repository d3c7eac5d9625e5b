#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Waits until brokers present the certificate in a file. Changes nothing."""

from __future__ import annotations

DOCUMENTATION = """
module: broker_presents
short_description: Wait until brokers present a certificate
description:
  - Waits until brokers present the certificate in a file. Changes nothing.
author: The Landline authors (!UNKNOWN)
options:
  file:
    description: PEM file whose first certificate is the wanted one.
    type: path
    required: true
  addresses:
    description: Listeners with TLS, each as host:port.
    type: list
    elements: str
    required: true
  timeout_s:
    description: Seconds until giving up. Brokers look at the file every ten seconds.
    type: float
    default: 30
"""
EXAMPLES = """
- name: Wait until the brokers present the new certificate
  landline.cluster.broker_presents:
    file: /etc/landline/broker.pem
    addresses: ["192.0.2.11:9094", "192.0.2.11:9095"]
"""
RETURN = """
waited_s:
  description: Seconds until all did.
  type: float
  returned: success
"""

import re
import ssl
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

PAUSE_S = 0.5
ANSWER_S = 5.0


def wanted_in(path: Path) -> str:
    """Returns the first certificate of the file, without spaces at its ends."""
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", path.read_text(), re.DOTALL)
    if found is None:
        raise ValueError(f"{path} has no certificate")
    return found[0]


def presented_at(address: str) -> str:
    """Returns the certificate that a listener presents now, or why it presents none."""
    host, _unused, port = address.rpartition(":")
    try:
        return ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=ANSWER_S).strip()
    except (OSError, ValueError) as error:
        return f"no answer: {error}"


def wrong(wanted: str, addresses: list[str]) -> list[str]:
    """Returns descriptions of the listeners that present something else."""
    found = {address: presented_at(address) for address in addresses}
    return [
        f"{address} ({shown if shown.startswith('no answer') else 'another certificate'})"
        for address, shown in found.items()
        if "".join(shown.split()) != "".join(wanted.split())
    ]


def main() -> None:
    module = AnsibleModule(
        {
            "file": {"type": "path", "required": True},
            "addresses": {"type": "list", "elements": "str", "required": True},
            "timeout_s": {"type": "float", "default": 30.0},
        },
        supports_check_mode=True,
    )
    params, began = module.params, time.monotonic()
    try:
        wanted = wanted_in(Path(params["file"]))
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    while found := wrong(wanted, params["addresses"]):
        if time.monotonic() - began >= params["timeout_s"]:
            module.fail_json(
                msg=f"The certificate in {params['file']} is not presented by {', '.join(found)} after "
                f"{params['timeout_s']:g} s; the broker's journal has tls_reload_failed with the reason"
            )
        time.sleep(PAUSE_S)
    module.exit_json(changed=False, waited_s=round(time.monotonic() - began, 1))


if __name__ == "__main__":
    main()
