# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong on one host before a deployment. Decides from what `preflight_info` saw and what the roles need;
reads nothing itself.

`host` is a dict: `name`, `groups`, `settings` (the
variables of the role `preflight`, without the prefix), `needs` (one dict for each role, from its tasks/needs.yml),
`unsettled` (errors of the variables) and `seen`, the module's result. A check returns (what is wrong, is it only a
warning) for each thing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

Host = Mapping[str, Any]
Faults = list[tuple[str, bool]]

FAULT, WARNING = False, True
OLDEST_SYSTEMD = 247
# Of Ansible's own interpreter on the host, which runs the modules.
OLDEST_PYTHON = (3, 11)
# The operator's to mend, whatever the others do without this host.
_LOGIN = re.compile(
    r"permission denied|host key verification|could not resolve|password|publickey|no such identity|sudo|become"
    r"|temporary failure in name|name or service not known|too open",
    re.IGNORECASE,
)
# What Python says where it can write no file, and ssh as it ends.
_NO_ROOM = re.compile(r"no usable temporary directory|no space left", re.IGNORECASE)
_CLOSED = re.compile(r"(shared )?connection to .* closed\.?", re.IGNORECASE)
_MOST_SAID = 200


def needs(host: Host, key: str) -> Iterable[tuple[Mapping[str, Any], Any]]:
    """Yields the roles that need something of this kind, each with what it needs."""
    return ((each, each[key]) for each in host["needs"] if each.get(key))


def is_reached(host: Host) -> bool:
    """Returns whether the host was looked at."""
    return "time" in host["seen"]


def has_brokers(host: Host) -> bool:
    """Returns whether brokers were deployed to this host before."""
    return bool(host["seen"].get("properties_files") or host["seen"].get("data"))


def reach(host: Host, some_run: bool) -> Faults:
    """A host that does not answer is left out where others have brokers that run; a login that fails is a fault."""
    if is_reached(host):
        return []
    words = " ".join(str(host["seen"].get("msg") or "no answer").split()).removeprefix("Task failed: ")
    if not host["seen"].get("unreachable"):
        return [(f"could not be looked at: {words}{_last_said(host['seen'])}", FAULT)]
    if _LOGIN.search(words):
        return [(f"no login: {words}", FAULT)]
    if some_run:
        return [(f"not reached, and left out: {words}", WARNING)]
    return [(f"not reached, in a cluster that is still to be made: {words}", FAULT)]


def _last_said(seen: Mapping[str, Any]) -> str:
    """The last line that came instead of a result, which Ansible's own words leave out: Python's error, mostly."""
    lines = [
        " ".join(line.split())
        for key in ("module_stdout", "module_stderr")
        for line in str(seen.get(key) or "").splitlines()
    ]
    last = next((each for each in reversed(lines) if each and not _CLOSED.fullmatch(each)), "")
    if not last:
        return ""
    told = last if len(last) <= _MOST_SAID else f"{last[:_MOST_SAID]}..."
    return f" ({told})" + (": is its disk full, or read-only?" if _NO_ROOM.search(last) else "")


def settings(host: Host) -> Faults:
    """Variables that contradict each other or the host, or that no role could work out, and files that roles need."""
    there = host["seen"].get("files")
    wrong = [each["msg"] for each in host["unsettled"]]
    wrong += [text for _unused, texts in needs(host, "wrong") for text in texts]
    for _unused, listed in needs(host, "files"):
        wrong += [each["wrong"] for each in listed if there is not None and each["path"] not in there]
    wrong += [host["seen"]["not_own"]] if host["seen"].get("not_own") else []
    wrong += [
        words for _unused, release in needs(host, "release") if (words := _lacks_release(host, release))
    ]
    return [(" ".join(str(each).split()), FAULT) for each in wrong]


def _lacks_release(host: Host, release: Mapping[str, Any]) -> str:
    """Why this host, which was looked at, cannot get the release; "" if it has it, or there is an archive that fits.

    A Python that brokers do not run on, or that is not there yet, is told of by itself.
    """
    seen = host["seen"]
    python = seen.get("versions", {}).get("python", "")
    if python not in host["settings"]["pythons"] or release["installed"] in seen["files"]:
        return ""
    machine, archives = seen["system"]["machine"], release["archives"]
    found = archives.get(f"cp{python.replace('.', '')}-{machine}")
    begin = f"landline_version is {release['version']}, which is not installed, and"
    if found is None:
        return (
            f"{begin} {release['dir']} has no archive of it for Python {python} on {machine}, but for "
            f"{', '.join(archives)}: {release['make']}, or set landline_version or common_python to what there is"
        )
    if not found["is_there"]:
        return f"{begin} its archive {found['path']} is missing: copy it there, or {release['make']}"
    return ""


def ports(host: Host) -> Faults:
    """Ports that two things of this host want, or that another process has."""
    wanted: dict[int, list[Mapping[str, Any]]] = {}
    for _unused, listed in needs(host, "ports"):
        for each in listed:
            wanted.setdefault(int(each["port"]), []).append(each)
    found: Faults = []
    for port, users in sorted(wanted.items()):
        if port and len(users) > 1:
            what = " and for ".join(each["for"] for each in users)
            by = " or ".join(dict.fromkeys(each["set_by"] for each in users))
            found.append((f"port {port} is wanted for {what}: another one is set by {by}", FAULT))
    for each in host["seen"].get("taken", []):
        users = wanted.get(int(each["port"]), [])
        if users:
            what = " and ".join(user["for"] for user in users)
            by = " or ".join(dict.fromkeys(user["set_by"] for user in users))
            found.append(
                (
                    f"port {each['port']} for {what} is in use by {each['process']}: another one is set by {by}",
                    FAULT,
                )
            )
    return found


def mounts(host: Host) -> Faults:
    """Directories that have to be mount points, and are not; disks that the host itself knows of, and that are missing;
    and what is mounted read-only.
    """
    looked = host["seen"].get("directories", {})
    of_roles = [each for _unused, listed in needs(host, "mounts") for each in listed]
    found: Faults = [
        (
            f"{each} is no mount point: its disk is missing, and data would go to the one of {looked[each]['mount']}",
            FAULT,
        )
        for each in dict.fromkeys([*host["settings"]["mounts"], *of_roles])
        if each in looked and not looked[each]["is_mount"]
    ]
    named = {str(each).rstrip("/") for each in (*host["settings"]["mounts"], *of_roles)}
    to_do = "mount it. If no disk is to be there any more, change {}, or remove the line that says so"
    found += [
        (f"{each['what']}: {to_do.format(each['set_by'])}", FAULT)
        for each in host["seen"].get("missing_mounts", [])
        if each["point"] not in named
    ]
    for _unused, listed in needs(host, "directories"):
        for each in listed:
            told = looked.get(each["path"])
            if told and not told["is_directory"]:
                found.append((f"{each['path']} for {each['for']} is no directory ({each['set_by']})", FAULT))
            elif told and told["read_only"]:
                found.append(
                    (f"{each['path']} for {each['for']} is mounted read-only ({told['mount']})", FAULT)
                )
    return found


def space(host: Host) -> Faults:
    """File systems with less room than the roles need of them together. Where brokers run already, it is a warning:
    the deployment may be what gives them room.
    """
    looked = host["seen"].get("directories", {})
    by_device: dict[int, list[Mapping[str, Any]]] = {}
    for _unused, listed in needs(host, "directories"):
        for each in listed:
            if each["path"] in looked:
                by_device.setdefault(looked[each["path"]]["device"], []).append(each)
    found: Faults = []
    for users in by_device.values():
        told = looked[users[0]["path"]]
        wanted = sum(int(each["mb"]) for each in users)
        severity = WARNING if has_brokers(host) and told["free_mb"] >= 1 else FAULT
        names = ", ".join(dict.fromkeys(each["path"] for each in users))
        if told["free_mb"] < wanted:
            found.append(
                (f"{told['free_mb']} MB free at {told['mount']}, {wanted} MB wanted for {names}", severity)
            )
        if 0 <= told["free_files"] < 1000:
            found.append(
                (f"{told['free_files']} files can still be made at {told['mount']} ({names})", severity)
            )
    return found


def memory(host: Host) -> Faults:
    """Less memory than brokers and ZooKeeper need; with Spark's workers, which can wait, it is a warning."""
    has, firm, all_of_it = host["seen"].get("memory_mb", 0), 0, 0
    for each, wanted in needs(host, "memory_mb"):
        all_of_it += int(wanted)
        firm += 0 if each.get("can_wait") else int(wanted)
    if not has or not all_of_it:
        return []
    if has < firm:
        return [(f"{has} MB of memory, {firm} MB wanted by its brokers and ZooKeeper", FAULT)]
    if has < all_of_it:
        by = "spark_worker_memory, spark_workers_per_host"
        return [(f"{has} MB of memory, {all_of_it} MB wanted with Spark's workers ({by})", WARNING)]
    return []


def clock(host: Host, now: float) -> Faults:
    """A clock that is off by more than it can seem to be because of the time the question took."""
    told, most = float(host["seen"]["time"]), float(host["settings"]["clock_s"])
    late, early = float(host["seen"]["asked_at"]) - told, told - now
    if late > most:
        return [(f"its clock is {late:.0f} s behind this machine's", FAULT)]
    if early > most:
        return [(f"its clock is at least {early:.0f} s ahead of this machine's", FAULT)]
    return []


def time_sync(host: Host) -> Faults:
    """No service that keeps the clock right."""
    if host["seen"].get("synchronised") is False:
        return [("nothing keeps its clock right: install chrony or enable systemd-timesyncd", WARNING)]
    return []


def versions(host: Host) -> Faults:
    """Programs that are too old, and distributions on which this was not tried."""
    seen, wants = host["seen"], host["settings"]
    told, system = seen["versions"], seen["system"]
    found: Faults = []
    if not told["systemd"] or int(told["systemd"]) < OLDEST_SYSTEMD:
        found.append((f"systemd {told['systemd'] or 'is missing'}: the units need {OLDEST_SYSTEMD}", FAULT))
    for each, python in needs(host, "python"):
        if not told["python"] and each.get("python_packages"):
            by = ", ".join(each["python_packages"])
            found.append((f"{python} is missing: common_packages ({by}) has to bring it", WARNING))
        elif told["python"] not in wants["pythons"]:
            which = f"Python {told['python']}" if told["python"] else "no Python"
            found.append(
                (f"{python} is {which}: common_python has to be one of {', '.join(wants['pythons'])}", FAULT)
            )
    for each, oldest in needs(host, "java"):
        by_package = each.get("java_with") and each["java_with"] not in seen["files"]
        if not told["java"]:
            # The package, which is installed if its jar is missing, brings a Java along.
            if each.get("java_with") and not by_package:
                found.append((f"java is missing, though {each['java_with']} is there: install a JRE", FAULT))
        elif int(told["java"]) < int(oldest):
            found.append((f"java is {told['java']}: {each['role']} needs {oldest}", FAULT))
    of_modules = told.get("ansible", "")
    if of_modules and tuple(map(int, of_modules.split("."))) < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        words = (
            f"Ansible runs its modules there by Python {of_modules}: they need {wanted}. Install one beside it, and "
            "set ansible_python_interpreter and common_python to it"
        )
        found.append((words, FAULT))
    if system["version"] not in wants["systems"].get(system["id"], []):
        found.append((f"{system['id']} {system['version']}: this was not tried there", WARNING))
    return found


def data(host: Host, cluster_id: str | None, members: Collection[int]) -> Faults:
    """Data of another broker or cluster, brokers that the inventory does not have on this host, and a ZooKeeper server
    that is in none of the ensembles with these members.
    """
    wanted = {
        path: int(each["id"])
        for _unused, listed in needs(host, "brokers")
        for each in listed
        for path in each["data_dirs"]
    }
    found: Faults = []
    for path, told in host["seen"].get("data", {}).items():
        if told["broker_id"] and told["broker_id"] != str(wanted.get(path)):
            found.append(
                (
                    f"{path} has data of broker {told['broker_id']}, and broker {wanted.get(path)} is to use it",
                    FAULT,
                )
            )
        if cluster_id and told["cluster_id"] and told["cluster_id"] != cluster_id:
            found.append(
                (f"{path} has data of the cluster {told['cluster_id']}; this one is {cluster_id}", FAULT)
            )
        if cluster_id == "" and told["cluster_id"]:
            found.append(
                (
                    f"{path} has data of the cluster {told['cluster_id']}, and ZooKeeper has no cluster: make restore",
                    FAULT,
                )
            )
    files = {f"broker-{number}.properties" for number in wanted.values()}
    left = sorted(set(host["seen"].get("properties_files", [])) - files)
    if wanted and left:
        whose = "whose brokers the inventory does not have here (broker_first_id, brokers_per_host)"
        found.append((f"has {', '.join(left)}, {whose}", FAULT))
    return found + _strange_server(host, members)


def _strange_server(host: Host, members: Collection[int]) -> Faults:
    """A ZooKeeper server, or its tree, that the role did not set up, and would take over without a word.

    One of `members` whose /etc was lost is no stranger: the others count on it.
    """
    seen = host["seen"].get("zookeeper") or {"is_ours": True}
    for each, wanted in needs(host, "server"):
        if seen["is_ours"]:
            continue
        if seen["runs"]:
            words = (
                f"{wanted['unit']} runs, and was not set up by this role: there is no {wanted['config_file']}. If the "
                "brokers are to use that ensemble as it is, take the host out of the group zookeeper, and set "
                "broker_zookeeper_connect. Otherwise stop and disable it"
            )
            return [(words, FAULT)]
        if seen["zxid"] and not all(int(number) in members for number in each["ids"]):
            words = (
                f"{wanted['data_dir']} has a tree of ZooKeeper's (zxid 0x{seen['zxid']:x}), and there is no "
                f"{wanted['config_file']}, so it is not known whose. If nobody needs it, move version-2 away. If it is "
                "this cluster's, as where /etc was lost: preflight_allow: [data] for this host, and it is taken up"
            )
            return [(words, FAULT)]
    return []
