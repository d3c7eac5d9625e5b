"""The settings of clients in docs/security.md, for the cluster and the user of a test.

Each client has a heading below "Clients", and the first block below it is its settings: a Python block that
sets ``settings``, or the lines of a properties file.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from typing import Any

from rig.landline_broker import REPOSITORY
from tests.support.documented import commands_of
from tests.support.secure_cluster import PASSWORDS, SecureCluster

PAGE = "docs/security.md"
BOOTSTRAP, USER = "broker1:9092", "alice"
TRUST, CERTIFICATE = "/etc/landline/ca.pem", "/etc/landline/alice.pem"


@cache
def _chapter() -> str:
    page = (REPOSITORY / PAGE).read_text()
    return page.split("\n## Clients\n")[1].split("\n## ")[0]


def _section(heading: str) -> str:
    return _chapter().split(f"\n### {heading}\n")[1].split("\n### ")[0]


def written(heading: str) -> str:
    """The settings as they are written."""
    block = re.search(r"^```(?:python|text)\n(.*?)^```", _section(heading), re.DOTALL | re.MULTILINE)
    assert block, heading
    return block[1]


def commands(heading: str, tool: str = "") -> list[list[str]]:
    """The words of each command that is written, or of one tool's."""
    found = [shlex.split(each.text.replace("\\\n", "")) for each in commands_of(PAGE, _section(heading))]
    return [words for words in found if tool in words[0]]


def placed(text: str, cluster: SecureCluster, user: str = USER) -> str:
    """Documented text with this cluster's address and authority, and another user and password."""
    for old, new in {
        BOOTSTRAP: cluster.bootstrap,
        TRUST: str(cluster.ca),
        CERTIFICATE: str(cluster.certificate(user)),
        PASSWORDS[USER]: PASSWORDS[user],
        f'"{USER}"': f'"{user}"',
        f"={USER}\n": f"={user}\n",
    }.items():
        text = text.replace(old, new)
    return text


def properties_of(client: str, cluster: SecureCluster, user: str = USER) -> dict[str, str]:
    """The documented properties file."""
    text = placed(written(client), cluster, user).replace("\\\n", "")
    return dict(line.split("=", 1) for line in text.splitlines())


def settings_of(client: str, cluster: SecureCluster, user: str = USER) -> dict[str, Any]:
    """What the documented Python sets."""
    names: dict[str, Any] = {}
    exec(placed(written(client), cluster, user), names)
    settings: dict[str, Any] = names["settings"]
    return settings
