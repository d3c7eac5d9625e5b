# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Says what the checkout that deploys a release has of other files than the release's commit."""

from __future__ import annotations

DOCUMENTATION = """
name: checkout_warning
short_description: What a checkout has of other files than a release's commit
description:
  - A release is pinned, and the roles, playbooks and plugins that deploy it are those of the checkout. This compares
    them with the release's commit, by git, and returns a warning. It is empty if they are the same.
  - It is empty too for an installed collection, for a directory that is no checkout, and without a commit. Where git
    cannot compare, the warning says so. It never fails.
author: The Landline authors (!UNKNOWN)
options:
  _terms:
    description: The directory of the collection.
    type: list
    elements: str
    required: true
  version:
    description: The release's version.
    type: str
    required: true
  commit:
    description: The commit that the release was made from, as its manifest has it.
    type: str
    default: ""
"""
EXAMPLES = """
- name: Show what is not the release's
  ansible.builtin.debug:
    msg: "{{ lookup('landline.cluster.checkout_warning', playbook_dir, version='0.5.0', commit=manifest.commit) }}"
"""
RETURN = """
_raw:
  description: The warning of each directory.
  type: list
  elements: str
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.landline.cluster.plugins.module_utils.release_checkout import (
    base_of,
    differing,
    questions,
    warning_of,
    warning_of_unknown,
)

# A deploy does not wait for a file system that hangs.
_WITHIN_S = 30


class LookupModule(LookupBase):  # type: ignore[misc] # Ansible has no types
    """Ansible's entry point."""

    def run(self, terms: Sequence[str], variables: Any = None, **kwargs: Any) -> list[str]:
        self.set_options(var_options=variables, direct=kwargs)
        version, commit = str(self.get_option("version")), str(self.get_option("commit"))
        return [checkout_warning(Path(term), version, commit) for term in terms]


def checkout_warning(root: Path, version: str, commit: str) -> str:
    """Returns what is to be said of a directory; empty if there is nothing."""
    base = base_of(commit)
    # An installed collection may lie in a checkout of something else.
    if not base or (root / "MANIFEST.json").exists() or not (root / ".git").exists():
        return ""
    try:
        answers = [_git(root, arguments) for arguments in questions(base)]
    except subprocess.CalledProcessError as error:
        return warning_of_unknown(version, commit, f"git says: {error.stderr}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return warning_of_unknown(version, commit, str(error))
    return warning_of(version, commit, differing(answers))


def _git(root: Path, arguments: list[str]) -> str:
    # A file's name need not be text.
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_WITHIN_S,
        check=True,
    )
    return done.stdout
