#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Waits over HTTP until the brokers of this host serve clients. Changes nothing, so it runs in check
mode too.

`landline may-stop` and `landline await-return` check whether the cluster can do without a broker, and whether
the broker is back in its ISRs.
"""

from __future__ import annotations

DOCUMENTATION = """
module: broker_health
short_description: Wait for brokers to be ready
description:
  - Waits over HTTP until the brokers of this host serve clients. Changes nothing, so it runs in check
    mode too.
  - '`landline may-stop` and `landline await-return` check whether the cluster can do without a broker,
    and whether the broker is back in its ISRs.'
author: The Landline authors (!UNKNOWN)
options:
  brokers:
    description:
      - The brokers, each with id, url, unit, and config, its properties file.
      - The wait ends at once when systemd has given up on a unit, or another broker answers at a url.
    type: list
    elements: dict
    required: true
  timeout_s:
    description: Seconds without progress until giving up; a recovery that has verified more is progress.
    type: float
    default: 60
  delay:
    description: Seconds between two attempts.
    type: float
    default: 0.5
  answer_timeout_s:
    description: Seconds an answer may take.
    type: float
    default: 5
  ca_file:
    description:
      - PEM file on the host with the CA of the brokers' HTTP ports, if any speaks https. It may be missing.
      - Whether a broker speaks http or https now is found out, whatever its url says.
    type: path
  token_file:
    description: File on the host whose first line is the token of the HTTP ports. It may be missing.
    type: path
"""
EXAMPLES = """
- name: Wait until this host's broker serves clients
  landline.cluster.broker_health:
    brokers:
      - {id: 1, url: "http://10.89.0.11:8092", unit: landline-broker@1.service}
"""
RETURN = """
attempts:
  description: How often was asked.
  type: int
  returned: success
"""

import json
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import ask, first_line

Broker = dict[str, Any]


def failed_units(units: list[str]) -> list[str]:
    """Returns the units that systemd does not restart by itself."""
    shown = [
        subprocess.run(["systemctl", "is-failed", unit], capture_output=True, text=True, check=False)
        for unit in units
    ]
    return [unit for unit, answer in zip(units, shown, strict=True) if answer.stdout.strip() == "failed"]


def look(
    broker: Broker, timeout_s: float, ca_file: str | None = None, token: str = ""
) -> tuple[str | None, int]:
    """Returns why a broker does not serve (None when it does), and the progress of its recovery. Without the
    token that the broker wants, the progress and whose port it is are not known.
    """
    ready = ask(broker, "/readyz", timeout_s, ca_file, token)
    told = ask(broker, "/status", timeout_s, ca_file, token)
    status = json.loads(told.body) if told.code == 200 else {}
    wrong = None if ready.code == 200 else f"{ready.url}: {ready.body.strip() or ready.code}"
    if "broker_id" in status and int(status["broker_id"]) != int(broker["id"]):
        at = told.url.removesuffix("/status")
        wrong = f"broker {status['broker_id']} answers at {at}, where broker {broker['id']} should be"
    loading = status.get("loading") or {}
    return wrong, int(loading.get("logs", 0)) + int(loading.get("segments", 0))


def main() -> None:
    module = AnsibleModule(
        {
            "brokers": {"type": "list", "elements": "dict", "required": True},
            "timeout_s": {"type": "float", "default": 60.0},
            "delay": {"type": "float", "default": 0.5},
            "answer_timeout_s": {"type": "float", "default": 5.0},
            "ca_file": {"type": "path"},
            "token_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        token = first_line(params["token_file"])
    except OSError as error:
        module.fail_json(msg=f"token_file {params['token_file']} cannot be read: {error}")
    attempts, best, deadline = 0, -1, 0.0
    while True:
        attempts += 1
        looks = [
            look(broker, params["answer_timeout_s"], params["ca_file"], token) for broker in params["brokers"]
        ]
        found = [wrong for wrong, _unused in looks if wrong is not None]
        if not found:
            module.exit_json(changed=False, attempts=attempts)
        failed = failed_units([broker["unit"] for broker in params["brokers"]])
        if failed:
            module.fail_json(msg=f"systemd gave up on {', '.join(failed)}: {'; '.join(found)}")
        done = sum(progress for _unused, progress in looks)
        if done > best:
            best, deadline = done, time.monotonic() + params["timeout_s"]
        if time.monotonic() >= deadline:
            module.fail_json(
                msg=f"not ready after {params['timeout_s']:g} s without progress (broker_ready_timeout_s): "
                + "; ".join(found)
            )
        time.sleep(params["delay"])


if __name__ == "__main__":
    main()
