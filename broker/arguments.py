"""The arguments of the command `landline`: its commands, their options, and what its help says.

Imported when arguments are parsed. argparse is used because click takes three times as long to load. What the
commands do is in `__main__`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from broker import __version__

DESCRIPTION: Final = """\
A Kafka-compatible broker: Kafka's protocol, files, ZooKeeper nodes and configuration, in Python.

commands:
  start FILE         run a broker of a cluster, configured by Kafka's server.properties
  standalone         run one broker by itself, without ZooKeeper; data is kept across restarts
  deregister FILE    after a crash: end the dead broker's ZooKeeper session, so that its partitions fail over at once
  may-stop FILE      before a restart or reboot: take the cluster's stop permit, once it bears that this broker stops
  await-return FILE  after it: wait until the broker is back in every ISR that it was in, and give the permit back
  metadata VERB …    backup, verify, restore, tree: ZooKeeper's metadata tree to a file, back to an empty ensemble,
                     and as text without credentials
  credentials VERB … set, delete, list: users' SCRAM credentials in ZooKeeper, also before the first start
  access FILE        users, ACLs and quotas: bring about what a list on the standard input says
  topics FILE        topics and dynamic configs: likewise, and show what is not as listed
  rebalance FILE     move partitions so that each broker has its share, under a throttle
  drain FILE         move everything away from brokers, or verify that they are empty
  fill FILE          let an empty broker get its replicas back under a throttle
  doctor …           say what is wrong: from a client's host with its brokers, or on a broker's host with the host
  check-config FILE  say whether `start FILE` would accept the file, and what is wrong with it

`landline COMMAND --help` has the options of a command. Metrics and state are served over HTTP on
landline.http.port: /metrics /livez /readyz /status."""
EPILOG: Final = """\
environment:
  LANDLINE_LOG_LEVEL    debug, info, warning or error
  LANDLINE_LOG_FORMAT   logfmt, or json for one JSON object per line

exit codes: 0 done, or stopped as asked, 1 failed, 2 wrong arguments, 66 no metadata tree (metadata backup), 69 no
ZooKeeper (may-stop, await-return, metadata), 75 not now or not yet (may-stop, await-return, rebalance, drain, fill),
78 wrong configuration, 130 ended by ^C; start and standalone: by a second one."""


_MOST_SECONDS: Final = 7 * 24 * 3600
# Where a deploy writes a broker's properties.
DEPLOYED: Final = "/etc/landline/broker-{}.properties"


def make_parser(default_data_dir: Path) -> argparse.ArgumentParser:
    """The parser of the whole command line. Its options have the command's name as ``command``."""
    parser = argparse.ArgumentParser(
        prog="landline",
        usage="landline [--version] COMMAND …",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"landline {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, help=argparse.SUPPRESS)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, prog=f"landline {name}", description=text, allow_abbrev=False)
        command.set_defaults(command=name)
        command.add_argument(
            "--override",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            type=_key_value,
            help="set a config over the file's; may be given many times",
        )
        return command

    start = add("start", "Runs a broker of a cluster until SIGTERM or ^C.")
    start.add_argument("file", metavar="FILE", help="a server.properties, as Kafka's")
    gone = add(
        "deregister",
        "Ends the ZooKeeper session that a broker left which crashed, so that its failover does not wait for "
        "zookeeper.session.timeout.ms. Does nothing to a broker that runs, or that stopped as asked. The systemd "
        "unit runs it as ExecStopPost=.",
    )
    gone.add_argument("file", metavar="FILE", help="the broker's server.properties")
    may_stop = add(
        "may-stop",
        "Asks whether the cluster bears that this host's broker stops, and takes the one permit for it: nobody else "
        "gets it until `landline await-return` has given it back, or until it expires. Exit code 0 means: stop it now.",
    )
    back = add(
        "await-return",
        "Waits until the broker, restarted, is back in every ISR that it was in when `landline may-stop` granted its "
        "stop, renews the permit meanwhile and gives it back at the end.",
    )
    for command in (may_stop, back):
        which = command.add_mutually_exclusive_group(required=True)
        # Without a default, which would take the other one's place.
        which.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            default=argparse.SUPPRESS,
            help="the broker's server.properties",
        )
        which.add_argument(
            "--broker",
            dest="file",
            metavar="ID",
            type=_file_of_broker,
            default=argparse.SUPPRESS,
            help=f"a broker of this host that a deploy installed: the file is {DEPLOYED.format('ID')}",
        )
        command.add_argument(
            "--holder", help="who asks; USER@HOST by default, and the same for both commands"
        )
        command.add_argument(
            "--for",
            dest="lease_s",
            metavar="SECONDS",
            type=_seconds,
            default=180.0,
            help="the permit expires after; 180",
        )
    may_stop.add_argument(
        "--within",
        metavar="SECONDS",
        type=_seconds,
        default=0.0,
        help="how long to wait for it; not at all by default",
    )
    may_stop.add_argument("--dry-run", action="store_true", help="only say whether it may; take nothing")
    may_stop.add_argument(
        "--who",
        action="store_true",
        help="only say who has the permit, in JSON, null if nobody; take nothing",
    )
    may_stop.add_argument(
        "--together",
        metavar="ID,…",
        type=_broker_ids,
        default=frozenset(),
        help="brokers that stop with it, as the others of a host that reboots",
    )
    back.add_argument(
        "--within",
        metavar="SECONDS",
        type=_seconds,
        default=600.0,
        help="give up after so long without progress; 600",
    )
    back.add_argument(
        "--known", action="store_true", help="wait as well until every broker that answers knows it"
    )
    back.add_argument("--unit", help="its systemd unit; the wait ends when systemd has given up on it")
    _add_metadata(commands)
    _add_credentials(commands)
    access = add(
        "access",
        "Brings about the users, ACLs and quotas that a JSON document on the standard input lists, and prints what it "
        "changed. What is so already is left alone, and what is not listed stays. No broker needs to run.",
    )
    access.add_argument("config", metavar="FILE", help="a broker's server.properties")
    access.add_argument("--dry-run", action="store_true", help="only print what would change")
    topics = add(
        "topics",
        "Brings about the topics and dynamic configs that a JSON document on the standard input lists, prints what it "
        "changed, and what exists and is not listed, which stays. It asks the brokers by their own listener.",
    )
    topics.add_argument("config", metavar="FILE", help="a broker's server.properties")
    topics.add_argument("--dry-run", action="store_true", help="only print what would change")
    topics.add_argument(
        "--json", action="store_true", help="print an object with the lists changes and drift"
    )
    _add_moves(add)
    _add_doctor(add)
    check = add("check-config", "Checks a configuration as `landline start` would.")
    check.add_argument("file", metavar="FILE", help="a server.properties, as Kafka's")
    check.add_argument(
        "--since",
        metavar="FILE",
        help="an older file: also say what differs, and whether that needs a restart",
    )
    alone = add("standalone", "Runs one broker without ZooKeeper until SIGTERM or ^C.")
    alone.add_argument("--port", type=_port, help="9092 by default; 0 takes a free one and prints it")
    alone.add_argument("--data-dir", metavar="DIR", type=Path, help=f"by default {default_data_dir}")
    alone.add_argument("--config", metavar="FILE", help="a server.properties for everything else")
    return parser


def _add_moves(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    end = "One at a time moves partitions: others are refused. Exit code 75 means that it is not done yet (--within)."
    goes_on = "All state is the cluster's: run again, it goes on. An interrupt"
    taken_back = f"{goes_on} takes its moves and their throttles back. {end}"
    rebalance = add(
        "rebalance",
        "Moves as few partitions as needed so that each broker has its share of replicas, bytes and leaders, and "
        f"replicas are spread over racks. Moves that others began are left alone. {taken_back}",
    )
    rebalance.add_argument(
        "--exclude", metavar="ID,…", type=_ids, default=(), help="brokers that neither get nor give"
    )
    rebalance.add_argument(
        "--capacity",
        metavar="ID=N",
        action="append",
        type=_capacity,
        default=[],
        help="a broker's share, 1 by default; may be given many times",
    )
    drain = add("drain", f"Moves all replicas from brokers to the others, and nothing else. {taken_back}")
    drain.add_argument("--verify", action="store_true", help="only say whether they are empty; 75 if not")
    drain.add_argument(
        "--forget",
        action="store_true",
        help="of empty brokers that have left the cluster, remove the dynamic configs; 75 if they have not",
    )
    fill = add(
        "fill",
        "Throttles the replicas of a broker that comes back empty, waits until all are in sync, and takes the "
        f"throttle away. {goes_on} leaves the throttle, for as long as the broker copies: --pause takes it away. {end}",
    )
    fill.add_argument(
        "--prepare", action="store_true", help="only set the throttle, before the broker is started"
    )
    for command in (rebalance, drain):
        command.add_argument(
            "--at-once", metavar="N", type=_count, default=10, help="moves to each broker at a time; 10"
        )
    for command in (drain, fill):
        command.add_argument("--broker", metavar="ID,…", type=_ids, required=True, help="of which brokers")
    for command in (rebalance, drain, fill):
        command.add_argument("file", metavar="FILE", help="the server.properties of any broker")
        command.add_argument(
            "--throttle",
            metavar="BYTES",
            type=_count,
            default=50 << 20,
            help="bytes per second for each broker, in and out; 52428800",
        )
        command.add_argument(
            "--pause",
            action="store_true",
            help="take all such moves and throttles back instead, whoever has the turn to move partitions",
        )
        command.add_argument(
            "--holder",
            metavar="NAME",
            help="who has the turn; commands of one run have one name, and keep the turn between them",
        )
        command.add_argument(
            "--run",
            metavar="JSON",
            type=_object,
            default={},
            help="an object that says of the run whatever others are to know, with the turn",
        )
        command.add_argument(
            "--who",
            action="store_true",
            help="only say who has the turn, in JSON, null if nobody; take nothing",
        )
        command.add_argument(
            "--take-over", metavar="NAME", help="who had the turn and is known to be dead: it need not expire"
        )
        command.add_argument(
            "--held",
            action="store_true",
            help="go on only if the holder still has the turn of the command before",
        )
        command.add_argument(
            "--keep",
            metavar="SECONDS",
            type=_seconds,
            help="when done, leave the turn to the holder's next command for so long",
        )
        command.add_argument("--dry-run", action="store_true", help="only say what it would do")
        command.add_argument(
            "--within", metavar="SECONDS", type=_seconds, help="how long to work; until done"
        )
        command.add_argument("--json", action="store_true", help="print an object")


def _ids(text: str) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if not all(each.isdecimal() for each in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are no broker ids, separated by commas")
    return tuple(dict.fromkeys(map(int, parts)))


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 1")
    return int(text)


def _capacity(text: str) -> tuple[int, float]:
    broker, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not equals or not broker.isdecimal() or not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not ID=N")
    return int(broker), number


def _add_doctor(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    doctor = add(
        "doctor",
        "Says what is wrong, what to change and where, one line for each check. From a client's host "
        "(--bootstrap-server): dials every address that brokers advertise. On a broker's host (FILE): disks, clock, "
        "limits, certificates, ports, ZooKeeper, and every listener of every broker. Changes nothing. Exit code 1 if "
        "a check fails; warnings fail nothing.",
    )
    doctor.add_argument(
        "file", nargs="?", metavar="FILE", help="the server.properties of a broker of this host"
    )
    doctor.add_argument("--bootstrap-server", metavar="HOST:PORT,…", help="brokers to ask first, as a client")
    doctor.add_argument(
        "--command-config", metavar="FILE", help="the client's settings, as for Kafka's tools"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.add_argument(
        "--within", metavar="SECONDS", type=_positive, default=15.0, help="how long it may take; 15"
    )


def _add_metadata(commands: Any) -> None:
    text = "The cluster's metadata tree in ZooKeeper: taken into a file, brought back to an ensemble that lost it."
    metadata = commands.add_parser("metadata", prog="landline metadata", description=text, allow_abbrev=False)
    verbs = metadata.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="backup, verify, restore or tree"
    )
    for verb, what in (
        ("backup", "Writes all persistent nodes with their ACLs to FILE; the cluster may run meanwhile."),
        ("verify", "Says whether FILE is whole and of the broker's cluster; asks no ZooKeeper."),
        (
            "restore",
            "Makes the tree of FILE in an ensemble that has none; no broker may run. Then start all brokers.",
        ),
        ("tree", "Prints all nodes as JSON lines, without credentials."),
    ):
        command = verbs.add_parser(
            verb, prog=f"landline metadata {verb}", description=what, allow_abbrev=False
        )
        command.set_defaults(command="metadata", override=[])
        if verb != "tree":
            command.add_argument("file", metavar="FILE", help="the backup")
        where = command.add_mutually_exclusive_group(required=True)
        where.add_argument("config", nargs="?", metavar="CONFIG", help="a broker's server.properties")
        where.add_argument("--zookeeper", metavar="CONNECT", help="host:port,…/chroot, as zookeeper.connect")


def _add_credentials(commands: Any) -> None:
    text = (
        "Users' SCRAM credentials, as kafka-configs.sh writes them; no broker needs to run. "
        "Passwords are never kept."
    )
    credentials = commands.add_parser(
        "credentials", prog="landline credentials", description=text, allow_abbrev=False
    )
    verbs = credentials.add_subparsers(dest="verb", metavar="VERB", required=True, help="set, delete or list")
    for verb, what in (
        ("set", "Sets a user's credentials for a password, which is read from the standard input or a file."),
        ("delete", "Deletes a user's credentials."),
        ("list", "Lists the users that have credentials, and for which mechanisms."),
    ):
        command = verbs.add_parser(
            verb, prog=f"landline credentials {verb}", description=what, allow_abbrev=False
        )
        command.set_defaults(command="credentials", override=[])
        where = command.add_mutually_exclusive_group(required=True)
        where.add_argument("config", nargs="?", metavar="CONFIG", help="a broker's server.properties")
        where.add_argument("--zookeeper", metavar="CONNECT", help="host:port,…/chroot, as zookeeper.connect")
        where.add_argument(
            "--data-dir", metavar="DIR", type=Path, help="of a standalone broker that does not run"
        )
        if verb == "list":
            continue
        command.add_argument("--user", required=True, help="the user's name")
        command.add_argument(
            "--mechanism",
            choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
            action="append",
            help="may be given twice; both by default",
        )
        if verb == "set":
            command.add_argument(
                "--iterations", type=_iterations, default=4096, metavar="N", help="4096 to 16384; 4096"
            )
            command.add_argument("--password-file", metavar="FILE", help="its first line is the password")


def _iterations(text: str) -> int:
    if not text.isdecimal() or not 4096 <= int(text) <= 16384:
        raise argparse.ArgumentTypeError(f"{text!r} is not 4096 to 16384")
    return int(text)


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535 are")
    return int(text)


def _file_of_broker(text: str) -> str:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no broker's id")
    return DEPLOYED.format(int(text))


def _positive(text: str) -> float:
    seconds = _seconds(text)
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is less than a second")
    return seconds


def _broker_ids(text: str) -> frozenset[int]:
    """The type of --together. Raises ValueError, which argparse reports."""
    return frozenset(int(each) for each in text.split(","))


def _seconds(text: str) -> float:
    """Parses ``120``, ``1.5``, or systemd's form ``120s``."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    if seconds > _MOST_SECONDS:  # no socket waits for longer than 24 days
        raise argparse.ArgumentTypeError(f"{text!r} is more than a week")
    return seconds
