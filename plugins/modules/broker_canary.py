#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Watches a broker for a while beside the others, and fails if it is worse. Changes nothing.

It asks the others' HTTP ports from this host. Those that give no answer are not compared.
"""

from __future__ import annotations

DOCUMENTATION = """
module: broker_canary
short_description: Watch a broker beside the others
description:
  - Watches a broker for a while beside the others, and fails if it is worse. Changes nothing.
  - It asks the others' HTTP ports from this host. Those that give no answer are not compared.
author: The Landline authors (!UNKNOWN)
options:
  broker:
    description: The broker, with id, unit and url.
    type: dict
    required: true
  others:
    description: HTTP addresses of the other brokers.
    type: list
    elements: str
    required: true
  seconds:
    description: How long to watch.
    type: float
    required: true
  every_s:
    description: Seconds between two looks.
    type: float
    default: 2
  ca_file:
    description: PEM file on the host with the CA of the HTTP ports. It may be missing.
    type: path
  token_file:
    description: File on the host whose first line is the token of the HTTP ports. It may be missing.
    type: path
"""
EXAMPLES = """
- name: Watch it
  landline.cluster.broker_canary:
    broker: {id: 1, unit: landline-broker@1.service, url: "http://192.0.2.11:8092"}
    others: ["http://192.0.2.12:8092"]
    seconds: 10
"""
RETURN = """
compared:
  description: Number of the other brokers that it was compared with.
  type: int
  returned: success
requests:
  description: The requests that it had enough of to say whether they were slow.
  type: list
  elements: str
  returned: success
reasons:
  description: In words, why it is worse.
  type: list
  returned: failure
"""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import (
    UNAUTHORIZED,
    ask,
    first_line,
)
from ansible_collections.landline.cluster.plugins.module_utils.broker_status import status_in
from ansible_collections.landline.cluster.plugins.module_utils.canary import (
    NO_PROCESS,
    SERVES,
    Look,
    Process,
    judged_by_time,
    look_of,
    why_worse,
)

ANSWER_S = 5.0
# At most so many others are asked: the answers of thousands of partitions are long.
MOST = 20
# However slow the answers are, so many looks are taken.
LEAST = 3


def process_of(unit: str) -> Process:
    """Returns the unit's process. Raises CalledProcessError."""
    argv = ["systemctl", "show", "--property=InvocationID,MainPID,NRestarts", unit]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    found = dict(line.split("=", 1) for line in shown.splitlines())
    return Process(f"{found['InvocationID']} {found['MainPID']}", int(found["NRestarts"]))


def look(url: str, params: dict[str, Any], token: str, unit: str = "") -> Look | None:
    """Returns a look at a broker; None without an answer of another one's."""
    # The port is another host's: what proves itself by the CA is believed, and its name is not looked at.
    broker = {"url": url}
    status = ask(broker, "/status", ANSWER_S, params["ca_file"], token)
    metrics = ask(broker, "/metrics", ANSWER_S, params["ca_file"], token)
    if not unit and (status.code != 200 or metrics.code != 200):
        return None
    told = status_in(status.code, status.body)
    if status.code == UNAUTHORIZED and ask(broker, "/readyz", ANSWER_S, params["ca_file"], token).code == 200:
        told = dict(SERVES)
    return look_of(told, metrics.body, process_of(unit) if unit else NO_PROCESS)


def watch(params: dict[str, Any], token: str) -> tuple[list[Look], list[list[Look]]]:
    """Returns the looks at the broker, and those at each of the others."""
    broker, urls = params["broker"], params["others"][:MOST]
    own: list[Look] = []
    beside: dict[str, list[Look]] = {url: [] for url in urls}
    deadline = time.monotonic() + params["seconds"]
    with ThreadPoolExecutor(MOST) as pool:
        while time.monotonic() < deadline or len(own) < LEAST:
            began = time.monotonic()
            asked = {url: pool.submit(look, url, params, token) for url in beside}
            mine = look(broker["url"], params, token, broker["unit"])
            if mine is not None:
                own.append(mine)
            for url, answer in asked.items():
                found = answer.result()
                if found is None:
                    del beside[url]  # nobody waits for it a second time
                else:
                    beside[url].append(found)
            time.sleep(max(params["every_s"] - (time.monotonic() - began), 0.1))
    return own, list(beside.values())


def main() -> None:
    module = AnsibleModule(
        {
            "broker": {"type": "dict", "required": True},
            "others": {"type": "list", "elements": "str", "required": True},
            "seconds": {"type": "float", "required": True},
            "every_s": {"type": "float", "default": 2.0},
            "ca_file": {"type": "path"},
            "token_file": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        own, beside = watch(params, first_line(params["token_file"]))
    except (OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"{params['broker']['unit']} cannot be watched: {error}", reasons=[])
    reasons = why_worse(int(params["broker"]["id"]), own, beside)
    if reasons:
        module.fail_json(msg="; ".join(reasons), reasons=reasons)
    module.exit_json(
        changed=False, compared=sum(len(looks) > 1 for looks in beside), requests=judged_by_time(own)
    )


if __name__ == "__main__":
    main()
