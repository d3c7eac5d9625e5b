"""How a host is reached by ssh: with the arguments that Ansible would give, and with what ssh makes of them.

ssh itself says what it makes of them (``ssh -G``), so that its configuration files count here too.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from sparkctl.errors import Error, UsageError

RESOLVE_TIMEOUT_S = 20
# The options of ssh's command line, with Ansible's variables for each, the first that is set, and the environment's.
_ARGUMENTS = (
    ("ansible_ssh_args",),
    ("ansible_ssh_common_args", "ANSIBLE_SSH_COMMON_ARGS"),
    ("ansible_ssh_extra_args", "ANSIBLE_SSH_EXTRA_ARGS"),
)
_OPTIONS = {
    "Port": ("ansible_port", "ansible_ssh_port", "ANSIBLE_REMOTE_PORT"),
    "User": ("ansible_user", "ansible_ssh_user", "ANSIBLE_REMOTE_USER"),
    "IdentityFile": (
        "ansible_private_key_file",
        "ansible_ssh_private_key_file",
        "ANSIBLE_PRIVATE_KEY_FILE",
    ),
}


@dataclass(frozen=True, slots=True)
class Login:
    """What ssh uses for a host: its HostName, User, Port and so on."""

    address: str
    user: str
    port: int
    identity_files: tuple[str, ...]
    known_hosts: tuple[str, ...]
    checks_host_key: bool
    proxy: str
    """The command whose input and output is the connection; empty if there is none between."""


def ssh_arguments(
    variables: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """The arguments of ssh, without the host, from a host's variables and Ansible's environment.

    Raises ``UsageError``.
    """

    def first(names: Sequence[str]) -> str:
        return next(
            (str(found) for name in names if (found := variables.get(name) or environment.get(name))), ""
        )

    words = [word for names in _ARGUMENTS for word in words_of(first(names), " or ".join(names))]
    for option, names in _OPTIONS.items():
        words += ["-o", f"{option}={value}"] if (value := first(names)) else []
    return tuple(words)


def words_of(text: str, source: str) -> list[str]:
    """The words of a text as a shell has them. Raises ``UsageError`` for ``source``."""
    try:
        return shlex.split(text)
    except ValueError as error:  # a quotation that does not end
        raise UsageError(f"{source}: {str(error).lower()}") from error  # without the text: it may be a secret


def resolve(arguments: Sequence[str], address: str) -> Login:
    """What ssh uses for a host with these arguments. Raises ``Error``."""
    command = ["ssh", "-G", *arguments, "--", address]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=RESOLVE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Error(f"{address}: {error}") from error
    if done.returncode != 0:
        raise Error(f"{address}: ssh refuses its arguments {shlex.join(arguments)}: {done.stderr.strip()}")
    return login_from(done.stdout, _config_file(arguments))


def login_from(text: str, config_file: str = "") -> Login:
    """The login in the output of ``ssh -G``, for which ssh was given ``config_file`` by -F."""
    rows = [line.partition(" ")[::2] for line in text.splitlines()]
    last = dict(rows)
    return Login(
        address=last["hostname"],
        user=last["user"],
        port=int(last["port"]),
        identity_files=tuple(str(Path(value).expanduser()) for key, value in rows if key == "identityfile"),
        known_hosts=tuple(last.get("userknownhostsfile", "").split()),
        checks_host_key=last.get("stricthostkeychecking", "ask") not in {"no", "off", "false", "accept-new"},
        proxy=_proxy(last, config_file),
    )


def _proxy(shown: Mapping[str, str], config_file: str) -> str:
    """The command of a ProxyCommand or a ProxyJump; for the latter as ssh itself makes it, which gives the options
    of the command line to no bastion, but the configuration file to each.
    """
    port, address, user = shown["port"], shown["hostname"], shown["user"]
    jumps = [each for each in shown.get("proxyjump", "none").split(",") if each and each != "none"]
    if jumps:
        config = ["-F", config_file] if config_file else []
        before = ["-J", ",".join(jumps[:-1])] if jumps[:-1] else []
        target = jumps[-1] if jumps[-1].startswith("ssh://") else f"ssh://{jumps[-1]}"
        return shlex.join(["ssh", *config, *before, "-W", f"[{address}]:{port}", "--", target])
    command = shown.get("proxycommand", "none")
    if command == "none":
        return ""
    for token, value in {"%h": address, "%p": port, "%r": user, "%n": address}.items():
        command = command.replace(token, value)
    return command.replace("%%", "%")


def _config_file(arguments: Sequence[str]) -> str:
    """The file of ssh's option -F, of which the last one counts; empty without one."""
    files = [word[2:] or after for word, after in pairwise([*arguments, ""]) if word.startswith("-F")]
    return files[-1] if files else ""
