#!/usr/bin/python
# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Collects what support needs to know of one host into an archive on it. Secrets are masked before
they are written.
"""

from __future__ import annotations

DOCUMENTATION = """
module: support_collect
short_description: Collect journals, configurations and states of a host, without secrets
description:
  - Writes a tar.gz on the host, readable only by root, and returns its path. Whoever fetches it removes its directory.
    What earlier ones have left there is removed.
  - Part of it that cannot be had is named in its errors.json, and does not end the rest.
author: The Landline authors (!UNKNOWN)
options:
  since:
    description: From when on to take the journals, in systemd's words.
    type: str
    default: -24h
  journal_bytes:
    description: The most bytes of each unit's journal; the newest lines are taken.
    type: int
    default: 4194304
  config_dir:
    description: Directory of the brokers' properties files.
    type: path
    default: /etc/landline
  zookeeper_config:
    description: ZooKeeper's configuration file.
    type: path
    default: /etc/zookeeper/landline.cfg
  landline:
    description: The command landline.
    type: path
    default: /opt/landline/current/venv/bin/landline
  work_dir:
    description: The directory in which the archive gets a directory of its own.
    type: path
    default: /var/lib/landline-work
  znodes:
    description: Whether to list ZooKeeper's metadata tree. One host of a cluster is enough.
    type: bool
    default: false
"""
EXAMPLES = """
- name: Collect
  landline.cluster.support_collect:
    since: -2h
    znodes: true
  register: support_collected
"""
RETURN = """
path:
  description: The archive.
  type: str
  returned: success
files:
  description: Size of each file in it, by name.
  type: dict
  returned: success
errors:
  description: What could not be had, and why, by name.
  type: dict
  returned: success
"""

import contextlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.landline.cluster.plugins.module_utils import work_dirs
from ansible_collections.landline.cluster.plugins.module_utils.addresses import host_port
from ansible_collections.landline.cluster.plugins.module_utils.broker_http import ask
from ansible_collections.landline.cluster.plugins.module_utils.masking import (
    Masker,
    is_secret,
    masked_properties,
    secrets_of_jaas,
    secrets_of_pem,
    secrets_of_properties,
)

COMMAND_S = 60
HTTP_S = 5
OK = 200
STACKS_S = 3.0
MOST_BYTES = 16 << 20
SIGUSR2_BIT = 1 << 11
STACKS_SIGN = "(most recent call first)"
SECRET_FILES = (".pem", ".key", ".p12", ".pfx", ".jks", ".keytab")
# Nothing of it shows a process's arguments or environment.
FACTS = {
    "disks": ["df", "-hT"],
    "inodes": ["df", "-i"],
    "memory": ["free", "-m"],
    "mounts": ["findmnt", "--list", "--output=TARGET,SOURCE,FSTYPE,OPTIONS"],
    "processes": ["ps", "-eo", "pid,ppid,user,etime,time,rss,nlwp,stat,comm"],
    "sockets": ["ss", "-lntp"],
    "units": ["systemctl", "list-units", "--all", "--no-pager", "landline-*", "zookeeper*"],
    "clock": ["timedatectl", "show"],
    "system": ["uname", "-a"],
    "kernel": ["dmesg", "--ctime", "--level=emerg,alert,crit,err,warn"],
    "limits": ["sysctl", "vm.max_map_count", "vm.swappiness", "fs.file-max", "net.core.somaxconn"],
    "java": ["java", "-version"],
    "os-release": ["cat", "/etc/os-release"],
}


class Archive:
    """The archive that is written. Every text goes through the masker."""

    def __init__(self, tar: tarfile.TarFile, masker: Masker) -> None:
        self._tar = tar
        self._masker = masker
        self.files: dict[str, int] = {}
        self.errors: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        data = self._masker(text).encode(errors="backslashreplace")[-MOST_BYTES:]
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
        self._tar.addfile(info, io.BytesIO(data))
        self.files[name] = len(data)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """One part of the archive: if it fails, the rest goes on."""
        try:
            yield
        except Exception as error:
            self.errors[name] = self._masker(f"{type(error).__name__}: {error}")


def run(argv: list[str], *, stdin: str = "") -> str:
    """Returns all that a command says, and its exit code if that is not 0. Raises OSError."""
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, errors="replace", timeout=COMMAND_S, check=False
    )
    code = f"[exit code {done.returncode}]\n" if done.returncode else ""
    return f"{done.stdout}{done.stderr}{code}"


def shown(unit: str, name: str) -> str:
    return run(["systemctl", "show", f"--property={name}", "--value", unit]).strip()


def units() -> list[str]:
    """Returns the units of the cluster on this host."""
    argv = ["systemctl", "list-units", "--all", "--plain", "--no-legend", "--type=service"]
    listed = run([*argv, "landline-*", "zookeeper*"])
    return [line.split()[0] for line in listed.splitlines() if line.strip() and "not-found" not in line]


def texts_of(params: Mapping[str, Any]) -> dict[str, str]:
    """Returns the configuration files with text, by path."""
    directory = Path(params["config_dir"])
    paths = [each for each in sorted(directory.rglob("*")) if each.is_file()] if directory.is_dir() else []
    paths += [each for each in [Path(params["zookeeper_config"])] if each.is_file()]
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found[str(path)] = path.read_text(errors="replace")
    return found


def is_properties(path: str) -> bool:
    return path.endswith((".properties", ".env", ".cfg"))


def secrets_in(texts: dict[str, str]) -> set[str]:
    """Returns the secrets that the host's configuration files have, and the files that these name."""
    found = set()
    for path, text in texts.items():
        if is_properties(path):
            found |= set(secrets_of_properties(text))
            for named in re.findall(r"^\s*landline\.http\.token\.file\s*[=:]\s*(\S+)", text, re.MULTILINE):
                with contextlib.suppress(OSError):
                    found |= tokens_in(Path(named).read_text(errors="replace"))
        else:
            found |= {*secrets_of_jaas(text), *secrets_of_pem(text)}
            if is_secret(Path(path).stem) and not path.endswith(SECRET_FILES):
                found |= tokens_in(text)
    return found


def tokens_in(text: str) -> set[str]:
    """Returns the lines of a file of tokens, and their words."""
    lines = {line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")}
    return lines | {word for line in lines for word in re.split(r"[\s:=]+", line) if len(word) >= 8}


def journal(unit: str, since: str, most_bytes: int) -> str:
    """Returns the newest lines of a unit's journal, of at most so many bytes."""
    argv = ["journalctl", f"--unit={unit}", f"--since={since}", "--no-pager", "--output=short-iso-precise"]
    with tempfile.TemporaryFile() as kept:
        subprocess.run(argv, stdout=kept, stderr=subprocess.STDOUT, timeout=COMMAND_S, check=False)
        size = kept.seek(0, os.SEEK_END)
        kept.seek(max(size - most_bytes, 0))
        text = kept.read().decode(errors="replace")
    return text if size <= most_bytes else "[older lines left out]\n" + text.partition("\n")[2]


def stacks(unit: str) -> str:
    """Has a broker write its threads' stacks to its journal, and returns them. A process that does not handle the
    signal would be ended by it, and gets none.
    """
    pid = shown(unit, "MainPID")
    if pid in ("", "0"):
        return f"{unit} does not run\n"
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
    if not caught & SIGUSR2_BIT:
        return f"process {pid} of {unit} does not handle SIGUSR2: its release cannot show stacks\n"
    cursor = run(["journalctl", f"--unit={unit}", "--lines=1", "--show-cursor", "--output=cat"])
    after = re.findall(r"^-- cursor: (.*)$", cursor, re.MULTILINE)
    run(["systemctl", "kill", "--kill-who=main", "--signal=SIGUSR2", unit])
    argv = ["journalctl", f"--unit={unit}", "--no-pager", "--output=cat"]
    argv += [f"--after-cursor={after[0]}"] if after else ["--lines=500"]
    before, deadline_s = "", time.monotonic() + STACKS_S
    while time.monotonic() < deadline_s:
        text = run(argv)
        if STACKS_SIGN in text and text == before:
            return text
        before = text
        time.sleep(0.1)
    return before


def http(properties: dict[str, str], path: str, page: str) -> str:
    """Returns a page of the broker of this host that has these properties, in the file at `path`. Raises OSError.

    Another process may have the port while the broker is down: who answers by TLS must be of the cluster's CA,
    before the token is sent.
    """
    host, port = properties.get("landline.http.host", ""), properties.get("landline.http.port", "8092")
    if port == "-1":
        return "the broker's HTTP port is off\n"
    if port == "0":
        return "the broker's HTTP port is any free one: its log says which\n"
    host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104 (told apart, not bound)
    scheme = "https" if properties.get("landline.http.ssl.keystore.location") else "http"
    token, token_file = "", properties.get("landline.http.token.file")
    if token_file:
        lines = [line.strip() for line in Path(token_file).read_text().splitlines()]
        token = next(line for line in lines if line and not line.startswith("#"))
    broker = {"url": f"{scheme}://{host_port(host, port)}", "config": path}
    answer = ask(broker, page, HTTP_S, str(Path(path).with_name("ca.pem")), token)
    if not answer.code:
        raise OSError(f"{answer.url}: {answer.body}")
    return answer.body if answer.code == OK else f"HTTP {answer.code}\n{answer.body}"


def plain_properties(text: str) -> dict[str, str]:
    """Returns the properties, for the few keys that are needed here."""
    rows = re.findall(r"^\s*([\w.]+)\s*[=:]\s*(.*?)\s*$", text, re.MULTILINE)
    return dict(rows)


def collect_host(archive: Archive, params: Mapping[str, Any], texts: dict[str, str]) -> None:
    for name, argv in FACTS.items():
        with archive.part(name):
            archive.add(f"host/{name}.txt", run(argv))
    for unit in units():
        with archive.part(f"journal of {unit}"):
            archive.add(f"journal/{unit}.log", journal(unit, params["since"], params["journal_bytes"]))
        with archive.part(f"unit {unit}"):
            archive.add(
                f"units/{unit}.txt",
                run(["systemctl", "cat", unit]) + run(["systemctl", "status", "--lines=0", unit]),
            )
    for path, text in texts.items():
        with archive.part(path):
            archive.add(f"config{path}", masked_properties(text) if is_properties(path) else not_shown(path))
    with archive.part("versions"):
        current = Path(params["landline"]).parents[2].resolve() if Path(params["landline"]).exists() else ""
        archive.add("host/release.txt", f"{current}\n" + run([params["landline"], "--version"]))


def not_shown(path: str) -> str:
    stat = Path(path).stat()
    return f"[not shown: {stat.st_size} bytes, mode {stat.st_mode & 0o7777:04o}, uid {stat.st_uid}]\n"


def collect_brokers(archive: Archive, params: Mapping[str, Any], texts: dict[str, str]) -> None:
    brokers = {
        found[1]: path
        for path in texts
        if (found := re.fullmatch(re.escape(params["config_dir"]) + r"/broker-(\d+)\.properties", path))
    }
    for number, (broker_id, path) in enumerate(sorted(brokers.items())):
        unit, properties = f"landline-broker@{broker_id}.service", plain_properties(texts[path])
        for page in ("status", "metrics"):
            with archive.part(f"/{page} of broker {broker_id}"):
                archive.add(f"broker-{broker_id}/{page}.txt", http(properties, path, f"/{page}"))
        with archive.part(f"stacks of broker {broker_id}"):
            archive.add(f"broker-{broker_id}/stacks.txt", stacks(unit))
        with archive.part(f"doctor of broker {broker_id}"):
            archive.add(
                f"broker-{broker_id}/doctor.json", run([params["landline"], "doctor", path, "--json"])
            )
        if params["znodes"] and number == 0:
            with archive.part("znodes"):
                archive.add("znodes.jsonl", run([params["landline"], "metadata", "tree", path]))


def collect(params: Mapping[str, Any]) -> dict[str, Any]:
    """Writes the archive. Returns what the module does."""
    texts = texts_of(params)
    place = work_dirs.made(Path(params["work_dir"]))
    path = place / "support.tar.gz"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            archive = Archive(tar, Masker(secrets_in(texts)))
            with archive.part("host"):
                collect_host(archive, params, texts)
            with archive.part("brokers"):
                collect_brokers(archive, params, texts)
            archive.add("errors.json", json.dumps(archive.errors, indent=1))
    except BaseException:
        work_dirs.removed(place)
        raise
    return {"path": str(path), "files": archive.files, "errors": archive.errors}


def main() -> None:
    module = AnsibleModule(
        {
            "since": {"type": "str", "default": "-24h"},
            "journal_bytes": {"type": "int", "default": 4 << 20},
            "config_dir": {"type": "path", "default": "/etc/landline"},
            "zookeeper_config": {"type": "path", "default": "/etc/zookeeper/landline.cfg"},
            "landline": {"type": "path", "default": "/opt/landline/current/venv/bin/landline"},
            "work_dir": {"type": "path", "default": "/var/lib/landline-work"},
            "znodes": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **collect(module.params))


if __name__ == "__main__":
    main()
