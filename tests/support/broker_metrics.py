"""What a running broker's metrics say."""

from __future__ import annotations

import re
import urllib.request

from rig.landline_broker import LandlineStandalone


def waiting_fetches(broker: LandlineStandalone) -> int:
    """How many Fetch requests wait in the purgatory."""
    with urllib.request.urlopen(f"{broker.http_url}/metrics") as answer:
        page = answer.read().decode()
    found = re.search(
        r"^kafka_server_delayedoperationpurgatory_purgatorysize\{.*Fetch.*\} (\S+)$", page, re.MULTILINE
    )
    assert found, page
    return int(float(found[1]))
