#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps a CA of the cluster's own, and a key and a certificate for each host, in a directory of this machine.
Replaces the CA by a new one, step by step.

Runs on the control node, whose Ansible has the package `cryptography`. Certificates of the operator's own are
only inspected.
"""

from __future__ import annotations

DOCUMENTATION = """
module: broker_certificates
short_description: A CA of the cluster's own, and certificates of the brokers' hosts
description:
  - Keeps a CA of the cluster's own, and a key and a certificate for each host, in a directory of this
    machine. Replaces the CA by a new one, step by step.
  - Runs on the control node, whose Ansible has the package `cryptography`. Certificates of the
    operator's own are only inspected.
author: The Landline authors (!UNKNOWN)
options:
  directory:
    description: Where the CA and the hosts' keys and certificates are; made if it is missing. Empty for given ones.
    type: str
    default: ""
  hosts:
    description:
      - The hosts, each with name, names (the names and addresses that its certificate is for), file and trusted.
      - C(file) is a PEM file with a key and its certificates that is given, else empty; C(trusted) is the file with
        the certificates of its CA.
    type: list
    elements: dict
    required: true
  days:
    description: Days for which a new certificate is valid.
    type: int
    default: 365
  renew_days:
    description: A certificate with fewer days left is replaced.
    type: int
    default: 30
  renew:
    description: Replaces all certificates.
    type: bool
    default: false
  rollover:
    description:
      - A step of the replacement of the CA by a new one.
      - C(trust) makes the new CA, and hosts trust both; C(issue) issues certificates by the new one; C(drop) takes
        the old one away.
    type: str
    choices: ["", trust, issue, drop]
    default: ""
  hosts_are_done:
    description: Whether all hosts have what there is. Only then the step goes on to the wanted one, and C(drop) ends.
    type: bool
    default: false
  issue:
    description: Whether to write anything; otherwise it only tells who the brokers are.
    type: bool
    default: true
"""
EXAMPLES = """
- name: Issue the certificates
  landline.cluster.broker_certificates:
    directory: /srv/landline-ca
    hosts:
      - {name: kafka-a, names: [kafka-a, 192.0.2.11], file: ""}
  delegate_to: localhost
"""
RETURN = """
hosts:
  description: By host, the path of its key and certificates, and the principal that the certificate makes it.
  type: dict
  returned: success
issued:
  description: Hosts that got a new certificate, each with the reason.
  type: dict
  returned: success
trusted:
  description: Path of the certificates that hosts trust; empty where certificates are given.
  type: str
  returned: success
rollover:
  description: The step of the CA's replacement, and whether the wanted one is still to come (pending).
  type: dict
  returned: success
"""

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.landline.cluster.plugins.module_utils.certificate_authority import (
    STEPS,
    Authorities,
    subject,
)
from ansible_collections.landline.cluster.plugins.module_utils.certificate_files import (
    WITHOUT_CRYPTOGRAPHY,
    CertificateError,
    given,
    why_untrusted,
    write,
)

with suppress(ImportError):  # main looks at WITHOUT_CRYPTOGRAPHY
    from cryptography import x509


@contextmanager
def alone(directory: Path, may_write: bool) -> Iterator[None]:
    """Keeps other runs out of the directory."""
    if not may_write:
        yield
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def inspect(hosts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Returns paths and principals of given certificates by host. Raises CertificateError with what is wrong with
    all of them.
    """
    found, wrong = {}, []
    # Each host presents its certificate to all others.
    trusted = dict.fromkeys(each["trusted"] for each in hosts if each.get("trusted"))
    for each in hosts:
        try:
            found[each["name"]] = principal(given(Path(each["file"]), each["names"]), each["file"])
        except CertificateError as error:
            wrong.append(f"{each['name']}: {error}")
            continue
        reasons = (why_untrusted(Path(each["file"]), Path(file)) for file in trusted)
        wrong += [f"{each['name']}: {reason}" for reason in reasons if reason]
    if wrong:
        raise CertificateError("; ".join(wrong))
    return found


def keep(params: Mapping[str, Any], may_write: bool) -> dict[str, Any]:
    """Returns the module's result. Raises CertificateError, OSError."""
    hosts = inspect([each for each in params["hosts"] if each.get("file")])
    own = [each for each in params["hosts"] if not each.get("file")]
    issued: dict[str, str] = {}
    if not own:
        if params["rollover"]:
            raise CertificateError(
                "landline_ca_rollover is for the cluster's own CA, and all certificates are given: docs/security.md "
                "has the steps for these"
            )
        none = {"step": "", "pending": False}
        return {"hosts": hosts, "issued": issued, "trusted": "", "rollover": none, "changed": False}
    directory = Path(params["directory"])
    with alone(directory, may_write):
        authorities = Authorities(directory, may_write)
        pending = authorities.take(
            params["rollover"], [each["name"] for each in own], params["hosts_are_done"]
        )
        trusted = authorities.trusted()
        for each in own:
            path = directory / f"{each['name']}.pem"
            wrong = authorities.issuer.why_not(path, each["names"], params["renew_days"])
            if not wrong and authorities.is_from_before(each["name"]):
                wrong = f"the CA is being replaced: {authorities.step}"
            if not wrong and params["renew"]:
                wrong = "it was to be renewed"
            if wrong:
                issued[each["name"]] = wrong
                if may_write:
                    write(path, authorities.issuer.issue(each["names"], params["days"]), 0o600)
            hosts[each["name"]] = {"path": str(path), "principal": f"User:{subject().rfc4514_string()}"}
    return {
        "hosts": hosts,
        "issued": issued,
        "trusted": str(trusted),
        "rollover": {"step": authorities.step, "pending": pending},
        "changed": authorities.changed or bool(issued),
    }


def principal(certificate: x509.Certificate, path: str) -> dict[str, str]:
    return {"path": path, "principal": f"User:{certificate.subject.rfc4514_string()}"}


def main() -> None:
    module = AnsibleModule(
        {
            "directory": {"default": ""},
            "hosts": {"type": "list", "elements": "dict", "required": True},
            "days": {"type": "int", "default": 365},
            "renew_days": {"type": "int", "default": 30},
            "renew": {"type": "bool", "default": False},
            "rollover": {"default": "", "choices": ["", *STEPS]},
            "hosts_are_done": {"type": "bool", "default": False},
            "issue": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    if WITHOUT_CRYPTOGRAPHY:
        module.fail_json(msg=missing_required_lib("cryptography"), exception=WITHOUT_CRYPTOGRAPHY)
    try:
        found = keep(module.params, may_write=module.params["issue"] and not module.check_mode)
        module.exit_json(**{**found, "changed": found["changed"] and module.params["issue"]})
    except (CertificateError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
