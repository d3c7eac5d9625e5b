# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the checkout that deploys a release has the roles, playbooks and plugins of that release's commit. Pure.

C(plugins/lookup/checkout_warning.py) asks git.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# What a run takes from the checkout.
DEPLOYING = ("deploy.yml", "playbooks", "plugins", "roles")
_NAMED = 3
_DIRTY = "-dirty"
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def base_of(commit: str) -> str:
    """Returns the commit of a release's manifest as git knows it; empty if there is none. A release that was made of
    more than its commit (C(--allow-dirty)) is compared with that commit: git has nothing else of it.
    """
    base = commit.removesuffix(_DIRTY)
    return base if _COMMIT.fullmatch(base) else ""


def questions(base: str) -> list[list[str]]:
    """Returns git's arguments for the files that differ: what it tracks, and what is new and not ignored.

    Nothing is written, not even a fresher index: the checkout may be another user's.
    """
    return [
        ["--no-optional-locks", "diff", "--name-only", "--no-renames", "-z", base, "--", *DEPLOYING],
        ["ls-files", "--others", "--exclude-standard", "-z", "--", *DEPLOYING],
    ]


def differing(answers: Sequence[str]) -> list[str]:
    """Returns the files of git's answers, in the order of their names."""
    return sorted({name for answer in answers for name in answer.split("\0") if name})


def warning_of(version: str, commit: str, files: Sequence[str]) -> str:
    """Returns what is to be said of files that are not the release's; empty if there are none."""
    if not files:
        return ""
    more = [f"and {len(files) - _NAMED} more"] if len(files) > _NAMED else []
    named = ", ".join([*files[:_NAMED], *more])
    what = "1 file is" if len(files) == 1 else f"{len(files)} files are"
    return (
        f"landline_version is {version}, and units and settings are those of this checkout, in which {what} not as in "
        f"the release's commit {_short(commit)}: {named}. {_cure(version, commit)}"
    )


def warning_of_unknown(version: str, commit: str, why: str) -> str:
    """Returns what is to be said if git could not compare."""
    return (
        f"landline_version is {version}, and units and settings are those of this checkout, which cannot be compared "
        f"with the release's commit {_short(commit)} ({' '.join(why.split())}). {_cure(version, commit)}"
    )


def _short(commit: str) -> str:
    return base_of(commit)[:12] + (_DIRTY if commit.endswith(_DIRTY) else "")


def _cure(version: str, commit: str) -> str:
    archive = f"landline-cluster-{version}.tar.gz"
    # No commit has what was not committed.
    first = "Install" if commit.endswith(_DIRTY) else "Check out that commit, or install"
    return (
        f"{first} {archive} and deploy by that, or set landline_version to dev if this working tree is meant"
    )
