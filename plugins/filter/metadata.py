# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Says whether a cluster's metadata tree is gone, by the look that playbooks/restore.yml takes at it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

THERE, GONE, AWAY, UNCLEAR = "there", "gone", "away", "unclear"
# The exit codes of `landline metadata backup`.
_SAID = {0: THERE, 66: GONE, 69: AWAY}
# Releases up to 0.4.0 have one exit code for all that is wrong.
_WORDS = "there is no cluster: "


def metadata_tree(said: Mapping[str, Any]) -> str:
    """Returns what a backup that was tried says of the tree: C(there); C(gone), which the ensemble itself said;
    C(away), the ensemble did not answer; or C(unclear), it could not be read for another reason.
    """
    found = _SAID.get(int(said["rc"]), UNCLEAR)
    return GONE if found == UNCLEAR and _WORDS in str(said.get("stderr", "")) else found


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Any]:
        return {"metadata_tree": metadata_tree}
