#!/usr/bin/python
"""Waits until brokers, asked over HTTP, allow the next step: serve clients, may be stopped, have caught up.

Reads /readyz and /status only. Changes nothing, so that it runs in check mode too.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: broker_health
short_description: Wait for brokers to be ready, or for the cluster to bear the restart of one of them
options:
  urls:
    description: HTTP addresses of the brokers to ask, without a path.
    type: list
    elements: str
    required: true
  units:
    description: Their systemd units on this host; the wait ends at once when one has failed for good.
    type: list
    elements: str
    default: []
  until:
    description:
      - C(ready) - every broker answers /readyz with 200.
      - C(may_stop) - stopping one broker keeps min.insync.replicas of every partition that has more.
      - C(in_sync) - no broker leads an under-replicated partition.
    choices: [ready, may_stop, in_sync]
    required: true
  retries:
    description: How often to ask before giving up.
    type: int
    default: 60
  delay:
    description: Seconds between two attempts.
    type: float
    default: 1
  timeout:
    description: Seconds an answer may take.
    type: float
    default: 5
"""
EXAMPLES = """
- name: Wait until this broker may be stopped
  broker_health:
    urls: ["http://10.89.0.11:8092", "http://10.89.0.12:8092"]
    until: may_stop
"""
RETURN = """
statuses:
  description: The last /status of every broker that answered, by address.
  type: dict
  returned: always
"""

Status = dict[str, Any]


def failed_units(units: list[str]) -> list[str]:
    """Returns those that systemd does not start again by itself."""
    shown = [
        subprocess.run(["systemctl", "is-failed", unit], capture_output=True, text=True, check=False)
        for unit in units
    ]
    return [unit for unit, answer in zip(units, shown, strict=True) if answer.stdout.strip() == "failed"]


def get(url: str, timeout_s: float) -> tuple[int, str]:
    """Returns HTTP status and body; 0 and the reason when nobody answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        return 0, str(error)


def under_replicated(status: Status) -> str:
    """Returns how many under-replicated partitions a broker leads, in words."""
    count = status["under_replicated_partitions"]
    return f"broker {status['broker_id']} leads {count} under-replicated partitions"


def why_not_may_stop(statuses: dict[str, Status]) -> list[str]:
    """Returns what forbids stopping a broker, one line per broker; empty when it may be stopped.

    With no under-replicated partition, one broker fewer leaves all but one replica in every ISR: only topics
    whose replicas do not outnumber min.insync.replicas lose writes, and waiting cannot help those. With
    under-replicated ones (a broker is down for good), every ISR must still be above min.insync.replicas.
    """
    if all(status["under_replicated_partitions"] == 0 for status in statuses.values()):
        return []
    return [
        f"{under_replicated(status)}, "
        f"{status['at_min_isr_partitions']} at and {status['under_min_isr_partitions']} under min.isr"
        for status in statuses.values()
        if status["at_min_isr_partitions"] or status["under_min_isr_partitions"]
    ]


def why_not_in_sync(statuses: dict[str, Status]) -> list[str]:
    """Returns which brokers lead under-replicated partitions, one line each."""
    return [under_replicated(status) for status in statuses.values() if status["under_replicated_partitions"]]


def problems(until: str, urls: list[str], timeout_s: float) -> tuple[list[str], dict[str, Status]]:
    """Asks every broker once; returns what is in the way, and the answers."""
    path = "/readyz" if until == "ready" else "/status"
    answers = {url: get(url.rstrip("/") + path, timeout_s) for url in urls}
    failed = [f"{url}{path}: {body.strip() or code}" for url, (code, body) in answers.items() if code != 200]
    if until == "ready":
        return failed, {}
    statuses = {url: json.loads(body) for url, (code, body) in answers.items() if code == 200}
    decide = why_not_may_stop if until == "may_stop" else why_not_in_sync
    return failed + decide(statuses), statuses


def main() -> None:
    module = AnsibleModule(
        {
            "urls": {"type": "list", "elements": "str", "required": True},
            "units": {"type": "list", "elements": "str", "default": []},
            "until": {"choices": ["ready", "may_stop", "in_sync"], "required": True},
            "retries": {"type": "int", "default": 60},
            "delay": {"type": "float", "default": 1.0},
            "timeout": {"type": "float", "default": 5.0},
        },
        supports_check_mode=True,
    )
    params = module.params
    for attempt in range(1, params["retries"] + 1):
        found, statuses = problems(params["until"], params["urls"], params["timeout"])
        if not found:
            module.exit_json(changed=False, statuses=statuses, attempts=attempt)
        failed = failed_units(params["units"])
        if failed:
            module.fail_json(
                msg=f"systemd gave up on {', '.join(failed)}: {'; '.join(found)}", statuses=statuses
            )
        if attempt < params["retries"]:
            time.sleep(params["delay"])
    module.fail_json(
        msg=f"not {params['until']} after {params['retries']} attempts: {'; '.join(found)}", statuses=statuses
    )


if __name__ == "__main__":
    main()
