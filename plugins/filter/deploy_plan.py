# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""What a deploy would do, as a document: made from looks at the hosts, and compared with a later look. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VERSION = 1
RESTARTS = ("restart",)
STARTS = ("new", "start")
# Where no turn was measured: seconds of a broker's stop; and the tasks of a turn, of the rest of a host's roll, and of
# the deploy beside rolls, as parts of the time that the plan's own tasks took.
STOP_S = 2.0
TURN_OF_PLAN = 0.5
HOST_OF_PLAN = 0.4
REST_OF_PLAN = 1.5
SERVERS_OF_PLAN = 0.6
# What is believed of another run's looks.
_MOST_FACTOR = 5.0
INSTALL_S = 30.0
# Until Ansible has read its playbooks.
BEGIN_S = 3.0
SERVER_S = 10.0
# What the keys of a digest mean, where they are no path.
_RUNNING = {"wanted": "release and settings that need a restart", "found": "process that runs"}


def broker_actions(hosts: Iterable[Mapping[str, Any]], aim: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what a deploy would do with each broker of these hosts; takes their variables after a look, and the
    listeners that brokers are to have in the end.
    """
    rows = [
        {**_broker(host, broker, looked), "turns": _turns(host, aim)}
        for host in hosts
        for broker, looked in zip(host["broker_all"], host["broker_planned"]["results"], strict=True)
    ]
    return sorted(rows, key=lambda row: int(row["id"]))


def _broker(host: Mapping[str, Any], broker: Mapping[str, Any], looked: Mapping[str, Any]) -> dict[str, Any]:
    seen = host["broker_seen"]
    action = _action(broker["unit"], seen, looked)
    allowed = {each["broker_one"]: each for each in host.get("broker_would", {}).get("results", [])}
    asked = allowed.get(broker["unit"])
    row = {
        "id": int(broker["id"]),
        "host": str(host["inventory_hostname"]),
        "unit": broker["unit"],
        "action": action,
        "release": str(host["broker_built"]["release"]),
        "is_installed": bool(seen["installed"]),
        "place": seen["place"],
        "diff": looked["diff"],
        "allowed": None if asked is None or action not in RESTARTS else _answer(asked),
        **{
            key: looked[key]
            for key in ("wanted", "found", "start_s", "turns_s", "host_s", "install_s", "rest_s")
        },
    }
    wrong = [
        each
        for each in host.get("broker_checked", {}).get("results", [])
        if each["broker_at"] == broker["config"]
    ]
    if wrong and wrong[0].get("rc", 0) == 78:
        row["allowed"] = {"now": False, "why": _line(wrong[0])}
    return row


def _turns(host: Mapping[str, Any], aim: Mapping[str, Any]) -> int:
    """How often each broker of a host is restarted, if it is: while listeners change, more than once."""
    if "broker_speaks_by" not in host:
        return 1
    speaks_other = host["broker_speaks_by"] != aim["between"]
    return 1 + int(speaks_other) + int(list(host["broker_listens_by"]) != list(aim["listeners"]))


def _action(unit: str, seen: Mapping[str, Any], looked: Mapping[str, Any]) -> str:
    if unit in seen["stopped"]:
        return "new" if looked["is_new"] else "start"
    if unit in seen["outdated"]:
        return "restart"
    if unit in seen["reloading"]:
        return "live"
    return "files" if looked["diff"] else "unchanged"


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"now": asked.get("rc") == 0, "why": _line(asked)}


def _line(done: Mapping[str, Any]) -> str:
    said = str(done.get("stdout") or "").strip() or str(done.get("stderr") or done.get("msg") or "").strip()
    return " ".join(said.removeprefix("landline: ").split())


def server_actions(hosts: Iterable[Mapping[str, Any]], wanted: Iterable[str]) -> list[dict[str, Any]]:
    """Returns what a deploy would do with each ZooKeeper server; takes the variables of hosts that have one after a
    look, and the names of those that are to have one.
    """
    rows, names = [], set(wanted)
    for host in hosts:
        looked, step = host["zookeeper_looked"], host["zookeeper_planned_step"]
        members = sorted(map(int, host["zookeeper_planned_members"]))
        name = str(host["inventory_hostname"])
        looks = host.get("zookeeper_planned") or {}
        planned = {"diff": [], "wanted": {}, "found": {}, "turns_s": [], **looks}
        rows.append(
            {
                "id": int(looked["id"]),
                "host": name,
                "action": _server(looked, name in names, members),
                "diff": planned["diff"],
                "wanted": planned["wanted"],
                "found": {
                    **planned["found"],
                    "state": f"{looked['state']}, members {sorted(looked['members'])}",
                },
                "turns_s": planned["turns_s"],
                "why": step["why"] if name in step["hosts"] or step["action"] == "refuse" else "",
                "refused": step["action"] == "refuse",
            }
        )
    return sorted(rows, key=lambda row: int(row["id"]))


def _server(looked: Mapping[str, Any], is_wanted: bool, members: Sequence[int]) -> str:
    runs = looked["state"] != "stopped"
    if not is_wanted:
        return "leave" if runs or looked["enabled"] else "unchanged"
    if not runs:
        return "start" if looked["members"] else "new"
    return "unchanged" if looked["state"] == "current" and sorted(looked["members"]) == members else "restart"


def deploy_plan(
    brokers: Sequence[Mapping[str, Any]], servers: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the plan. `settings` has `salt`, the `unreached` hosts, the `release`, `canary_s`, and `plan_s`, the
    seconds that the looks took.
    """
    plan_s = float(settings["plan_s"])
    restarts = [row for row in brokers if row["action"] in RESTARTS]
    restarted = [row for row in servers if row["action"] in RESTARTS]
    rows = [{**row, "seconds": _broker_s(row, plan_s)} for row in brokers]
    rests = [each for row in brokers for each in row["rest_s"]]
    rolled = {
        row["host"]: row["turns"] * typical(row["host_s"], plan_s, plan_s * HOST_OF_PLAN) for row in restarts
    }
    parts = {
        "look": BEGIN_S + plan_s * (1 + SERVERS_OF_PLAN),
        "prepare": typical(rests, plan_s, plan_s * REST_OF_PLAN),
        # On all hosts at once.
        "install": max(
            (typical(row["install_s"], plan_s, INSTALL_S) for row in brokers if not row["is_installed"]),
            default=0.0,
        ),
        "start": max((start_s(row) for row in brokers if row["action"] in STARTS), default=0.0),
        "zookeeper": servers_s(servers, plan_s),
        "roll": sum(row["seconds"] for row in rows) + sum(rolled.values()),
        "canary": float(settings["canary_s"]) if restarts else 0.0,
    }
    return {
        "version": VERSION,
        "release": settings["release"],
        "salt": settings["salt"],
        "brokers": rows,
        "zookeeper": list(servers),
        "unreached": sorted(settings["unreached"]),
        "look_s": round(plan_s, 2),
        "parts_s": {key: round(value, 1) for key, value in parts.items()},
        "seconds": round(sum(parts.values()), 1),
        "is_measured": bool(rests) and all(row["turns_s"] for row in restarts + restarted),
    }


def servers_s(servers: Iterable[Mapping[str, Any]], plan_s: float) -> float:
    """Returns the expected seconds of ZooKeeper's steps: servers that start do so at once, others one by one."""
    rows = [row for row in servers if row["action"] != "unchanged"]
    each = [(row["action"] in STARTS, typical(row.get("turns_s", []), plan_s, SERVER_S)) for row in rows]
    return sum(took for starts, took in each if not starts) + max(
        (took for starts, took in each if starts), default=0.0
    )


def _broker_s(row: Mapping[str, Any], plan_s: float) -> float:
    return round(turn_s(row, plan_s) * int(row["turns"]), 1) if row["action"] in RESTARTS else 0.0


def turn_s(row: Mapping[str, Any], plan_s: float) -> float:
    """Returns the expected seconds of a broker's turn: of its last ones, or from its last start."""
    fixed_s = STOP_S + start_s(row)
    return typical(row["turns_s"], plan_s, fixed_s + TURN_OF_PLAN * plan_s, fixed_s)


def start_s(row: Mapping[str, Any]) -> float:
    return float(row["start_s"] or 5.0)


def typical(
    measured: Sequence[Sequence[float | None]], plan_s: float, otherwise: float, fixed_s: float = 0.0
) -> float:
    """Returns the median of the last three durations, each given with that of the looks of its run, if it had some.

    Over a slow connection, or on a busy machine, the looks take longer, and so does all but `fixed_s`.
    """
    found = []
    for took_s, look_s in measured[-3:]:
        factor = min(max(plan_s / look_s, 1 / _MOST_FACTOR), _MOST_FACTOR) if look_s else 1.0
        fixed = min(fixed_s, took_s or 0.0)
        found.append(fixed + ((took_s or 0.0) - fixed) * factor)
    return float(statistics.median(found)) if found else otherwise


def plan_salt(text: str) -> str:
    """Returns the salt of a plan's file; empty if the file is none, or that of another version."""
    try:
        plan = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(plan, dict) or plan.get("version") != VERSION:
        return ""
    return str(plan.get("salt") or "")


def plan_differences(plan: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns in words what is not as it was when the plan was made; empty if a deploy would do what it says."""
    if plan.get("version") != VERSION:
        return [f"the file is no plan of version {VERSION}: make a new one"]
    if plan["release"] != now["release"]:
        return [f"the release to deploy was {plan['release']} and is {now['release']}"]
    away = set(plan["unreached"]), set(now["unreached"])
    return [
        *(_reached(host, host in away[0]) for host in sorted(away[0] ^ away[1])),
        *_changed(plan["brokers"], now["brokers"], "broker", away[0] | away[1]),
        *_changed(plan["zookeeper"], now["zookeeper"], "ZooKeeper server", away[0] | away[1]),
    ]


def _reached(host: str, is_back: bool) -> str:
    return (
        f"{host} was not reached then, and is now" if is_back else f"{host} was reached then, and is not now"
    )


def _changed(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], kind: str, away: set[str]
) -> list[str]:
    then = {(row["host"], row["id"]): row for row in before if row["host"] not in away}
    later = {(row["host"], row["id"]): row for row in after if row["host"] not in away}
    found = []
    for key in sorted(set(then) | set(later)):
        who = f"{kind} {key[1]} on {key[0]}"
        if key not in later:
            found.append(f"{who} is in the plan, and in the inventory no more")
        elif key not in then:
            found.append(f"{who} is not in the plan")
        else:
            found += [f"{who}: {words}" for words in _differing(then[key], later[key])]
    return found


def _differing(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    words = []
    for side, whose in (("found", "on the host"), ("wanted", "that the inventory wants")):
        keys = sorted(key for key in {*then[side], *now[side]} if then[side].get(key) != now[side].get(key))
        # The process and its environment, which has the fingerprint of all settings, follow from the others.
        others = [key for key in keys if key != "running" and not key.endswith(".env")]
        words += [f"another {_RUNNING[side] if key == 'running' else key} {whose}" for key in others or keys]
    new = [line for line in now["diff"] if line[:1] in ("+", "-") and line not in then["diff"]]
    shown = [line for line in new if "LANDLINE_FINGERPRINT=" not in line][:5]
    if words and shown:
        words[-1] += f" ({'; '.join(shown)})"
    if not words and then["action"] != now["action"]:
        words.append(f"{then['action']} in the plan, and now {now['action']}")
    return words


def planned_units(
    plan: Mapping[str, Any], host: str, actions: Sequence[str] = (*RESTARTS, *STARTS)
) -> list[str]:
    """Returns the units of a host that the plan starts or restarts, or has other actions for."""
    return [row["unit"] for row in plan["brokers"] if row["host"] == host and row["action"] in actions]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        return {
            "broker_actions": broker_actions,
            "server_actions": server_actions,
            "deploy_plan": deploy_plan,
            "plan_salt": plan_salt,
            "plan_differences": plan_differences,
            "planned_units": planned_units,
        }
