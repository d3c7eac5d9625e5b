"""The command `landline`: parses arguments, loads and checks the configuration, runs the command.

Each command imports its own heavy modules, so that start-up stays fast. Signals and systemd are handled by
`server.daemon`; BrokerServer defines the order in which the parts start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from broker import __version__
from broker.utils.options import Options

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
# EX_CONFIG of sysexits.h: starting again does not help; a unit can use it (RestartPreventExitStatus=78).
EXIT_CONFIG: Final = 78
EXIT_INTERRUPTED: Final = 130

# Commands that run until a signal ends them.
_DAEMONS: Final = frozenset({"start", "standalone"})

DESCRIPTION: Final = """\
A Kafka-compatible broker: Kafka's protocol, files, ZooKeeper nodes and configuration, in Python.

commands:
  start FILE         run a broker of a cluster, configured by Kafka's server.properties
  standalone         run one broker by itself, without ZooKeeper; data is kept across restarts
  deregister FILE    after a crash: end the dead broker's ZooKeeper session, so that its partitions fail over at once
  may-stop FILE      before a restart or reboot: take the cluster's stop permit, once it bears that this broker stops
  await-return FILE  after it: wait until the broker is back in every ISR that it was in, and give the permit back
  metadata VERB …    backup, verify, restore: ZooKeeper's metadata tree to a file, and back to an empty ensemble
  credentials VERB … set, delete, list: users' SCRAM credentials in ZooKeeper, also before the first start
  check-config FILE  say whether `start FILE` would accept the file, and what is wrong with it

`landline COMMAND --help` has the options of a command. Metrics and state are served over HTTP on
landline.http.port: /metrics /livez /readyz /status."""
EPILOG: Final = """\
environment:
  LANDLINE_LOG_LEVEL    debug, info, warning or error
  LANDLINE_LOG_FORMAT   logfmt, or json for one JSON object per line

exit codes: 0 done, or stopped as asked, 1 failed, 2 wrong arguments, 69 no ZooKeeper, 75 not now (may-stop,
await-return), 78 wrong configuration, 130 forced by a second ^C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"landline {__version__}")
        return EXIT_OK
    if argv is None and arguments and arguments[0] in _DAEMONS:  # not when a caller runs main()
        from broker.utils.stop_signals import block_signals

        block_signals()
    options = _parser().parse_args(arguments)
    command: Callable[[Options], int] = options.run
    try:
        return command(options)
    except KeyboardInterrupt:  # before the daemon handles signals
        return EXIT_INTERRUPTED


def _parser() -> Any:
    import argparse  # not click: it takes three times as long to load

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

    def add(name: str, run: Callable[[Options], int], text: str) -> Any:
        command = commands.add_parser(name, prog=f"landline {name}", description=text, allow_abbrev=False)
        command.set_defaults(run=run)
        command.add_argument(
            "--override",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            type=_key_value,
            help="set a config over the file's; may be given many times",
        )
        return command

    start = add("start", _start, "Runs a broker of a cluster until SIGTERM or ^C.")
    start.add_argument("file", metavar="FILE", help="a server.properties, as Kafka's")
    gone = add(
        "deregister",
        _deregister,
        "Ends the ZooKeeper session that a broker left which crashed, so that its failover does not wait for "
        "zookeeper.session.timeout.ms. Does nothing to a broker that runs, or that stopped as asked. The systemd "
        "unit runs it as ExecStopPost=.",
    )
    gone.add_argument("file", metavar="FILE", help="the broker's server.properties")
    may_stop = add(
        "may-stop",
        _turn,
        "Asks whether the cluster bears that this host's broker stops, and takes the one permit for it: nobody else "
        "gets it until `landline await-return` has given it back, or until it expires. Exit code 0 means: stop it now.",
    )
    back = add(
        "await-return",
        _turn,
        "Waits until the broker, restarted, is back in every ISR that it was in when `landline may-stop` granted its "
        "stop, renews the permit meanwhile and gives it back at the end.",
    )
    for command in (may_stop, back):
        command.add_argument("file", metavar="FILE", help="the broker's server.properties")
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
    back.add_argument(
        "--within",
        metavar="SECONDS",
        type=_seconds,
        default=600.0,
        help="give up after so long without progress; 600",
    )
    back.add_argument("--unit", help="its systemd unit; the wait ends when systemd has given up on it")
    _add_metadata(commands)
    _add_credentials(commands)
    check = add("check-config", _check_config, "Checks a configuration as `landline start` would.")
    check.add_argument("file", metavar="FILE", help="a server.properties, as Kafka's")
    alone = add("standalone", _standalone, "Runs one broker without ZooKeeper until SIGTERM or ^C.")
    alone.add_argument("--port", type=_port, help="9092 by default; 0 takes a free one and prints it")
    alone.add_argument("--data-dir", metavar="DIR", type=Path, help=f"by default {_default_data_dir()}")
    alone.add_argument("--config", metavar="FILE", help="a server.properties for everything else")
    return parser


def _add_metadata(commands: Any) -> None:
    text = "The cluster's metadata tree in ZooKeeper: taken into a file, brought back to an ensemble that lost it."
    metadata = commands.add_parser("metadata", prog="landline metadata", description=text, allow_abbrev=False)
    verbs = metadata.add_subparsers(
        dest="verb", metavar="VERB", required=True, help="backup, verify or restore"
    )
    for verb, what in (
        ("backup", "Writes all persistent nodes with their ACLs to FILE; the cluster may run meanwhile."),
        ("verify", "Says whether FILE is whole and of the broker's cluster; asks no ZooKeeper."),
        (
            "restore",
            "Makes the tree of FILE in an ensemble that has none; no broker may run. Then start all brokers.",
        ),
    ):
        command = verbs.add_parser(
            verb, prog=f"landline metadata {verb}", description=what, allow_abbrev=False
        )
        command.set_defaults(run=_metadata, override=[])
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
        command.set_defaults(run=_credentials, override=[])
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
    import argparse

    if not text.isdecimal() or not 4096 <= int(text) <= 16384:
        raise argparse.ArgumentTypeError(f"{text!r} is not 4096 to 16384")
    return int(text)


def _key_value(text: str) -> tuple[str, str]:
    import argparse

    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def _port(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: 0 to 65535 are")
    return int(text)


def _seconds(text: str) -> float:
    """Parses ``120``, ``1.5``, or systemd's form ``120s``."""
    import argparse
    import math

    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111 - never raises
    return Path(base) / "landline"


# --- commands


def _check_config(options: Options) -> int:
    config = _load(options.file, {}, options.override)
    if config is None:
        return EXIT_CONFIG
    for warning in config.warnings:
        print(f"{options.file}: warning: {warning}")
    print(f"{options.file}: good, {len(config.static_values)} configs are set")
    return EXIT_OK


def _deregister(options: Options) -> int:
    """Reads only the data directories from the configuration: a crashed broker's failover waits for
    this command.
    """
    from broker.config.log_dirs import log_dir_paths
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties
    from broker.server.registration.deregister import deregister

    try:
        texts = {**read_properties(options.file), **dict(options.override)}
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    report = deregister([Path(path) for path in log_dir_paths(texts.get("log.dirs"), texts.get("log.dir"))])
    took_ms = _process_age_ms()  # before further modules are loaded
    structlog = _logging()
    getattr(structlog.get_logger("broker"), report.level)(report.event, **report.fields, took_ms=took_ms)
    return EXIT_OK


def _turn(options: Options) -> int:
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties
    from broker.server.stopping.turn_command import await_return, may_stop

    try:
        properties = {**read_properties(options.file), **dict(options.override)}
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    os.environ.setdefault("LANDLINE_LOG_LEVEL", "warning")
    _logging()
    return (await_return if hasattr(options, "unit") else may_stop)(options, properties, _complain)


def _metadata(options: Options) -> int:
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties
    from broker.server.metadata_command import run

    try:
        properties = {} if options.config is None else read_properties(options.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    os.environ.setdefault("LANDLINE_LOG_LEVEL", "error")
    _logging()
    return run(options, properties, _complain)


def _credentials(options: Options) -> int:
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties
    from broker.server.credentials_command import run

    try:
        properties = {} if options.config is None else read_properties(options.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    os.environ.setdefault("LANDLINE_LOG_LEVEL", "error")
    _logging()
    return run(options, properties, _complain)


def _logging() -> Any:
    """structlog, configured."""
    from broker.utils.lean_import import import_lean

    structlog = import_lean("structlog")
    from broker.utils.logging_setup import configure_logging

    configure_logging()
    return structlog


def _start(options: Options) -> int:
    config = _load(options.file, {}, options.override)
    if config is None:
        return EXIT_CONFIG
    return _serve(config, store_path=None, on_ready=lambda _: None)


def _standalone(options: Options) -> int:
    data_dir: Path = (options.data_dir or _default_data_dir()).absolute()
    config = _load(options.config, _standalone_defaults(data_dir), _standalone_overrides(options))
    if config is None:
        return EXIT_CONFIG
    try:
        data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        _complain(
            f"the data directory {data_dir} cannot be made: {error.strerror}. Choose another by --data-dir"
        )
        return EXIT_FAILED
    if not os.access(data_dir, os.W_OK | os.X_OK):
        _complain(
            f"the data directory {data_dir} may not be written by uid {os.geteuid()}: change its owner, or choose "
            "another by --data-dir"
        )
        return EXIT_FAILED
    if sys.stderr.isatty():
        os.environ.setdefault("LANDLINE_LOG_LEVEL", "warning")
    return _serve(
        config,
        store_path=data_dir / "metadata.sqlite",
        on_ready=lambda server: _print_ready(server, config, data_dir),
    )


def _standalone_defaults(data_dir: Path) -> dict[str, str]:
    """The defaults, which `--config` may change."""
    return {
        "broker.id": "0",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": str(data_dir / "logs"),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": "1",
        "landline.http.host": "127.0.0.1",
    }


def _standalone_overrides(options: Options) -> list[tuple[str, str]]:
    port = [] if options.port is None else [("listeners", f"PLAINTEXT://127.0.0.1:{options.port}")]
    return [*port, *options.override, ("landline.standalone", "true")]


def _load(file: str | None, defaults: Mapping[str, str], overrides: Sequence[tuple[str, str]]) -> Any:
    """The checked configuration; None after printing everything that is wrong with it."""
    from broker.config.broker_config import BrokerConfig
    from broker.config.problems import ConfigError
    from broker.config.properties import Properties, read_properties

    try:
        properties = read_properties(file) if file else Properties()
        for key, value in defaults.items():
            properties.setdefault(key, value)
        config = BrokerConfig.from_properties(properties, overrides)
        _check_tls(config, properties)
        return config
    except ConfigError as error:
        print(error, file=sys.stderr)
        count = len(error.problems)
        _complain(
            f"{count} {'problem' if count == 1 else 'problems'} in the configuration; nothing was started"
        )
        return None


def _check_tls(config: Any, properties: Any) -> None:
    """Raises ConfigError if a TLS listener's key store or trust store cannot be used. Its problems get their
    lines in the file.
    """
    from broker.config.listener_keys import speaks_tls
    from broker.config.problems import ConfigError

    if not any(speaks_tls(endpoint) for endpoint in config.listeners):
        return
    _logging()
    from broker.tls.manager import TlsManager

    try:
        TlsManager(config)
    except ConfigError as error:
        lines = properties.lines
        found = [problem._replace(line=lines.get(problem.key)) for problem in error.problems]
        raise ConfigError(found, properties.source) from error


def _serve(config: Any, store_path: Path | None, on_ready: Callable[[Any], None]) -> int:
    """Runs a broker until it stops."""
    log = _logging().get_logger("broker")
    for warning in config.warnings:
        log.warning("config_warning", message=warning)
    from broker.utils.lean_import import import_lean

    for library in ("crc32c",) if store_path is not None else ("crc32c", "kazoo.client"):
        import_lean(library)  # while there is one thread, and before the broker's modules import it whole
    from broker.server.broker_server import BrokerServer, StartupCancelled, StartupError
    from broker.server.daemon import Daemon, StartupErrors
    from broker.utils.systemd import Notifier

    def make_server(notify: Callable[[str], None]) -> Any:
        store = None
        if store_path is not None:
            from broker.zookeeper.embedded import EmbeddedStore

            store = EmbeddedStore(store_path)
        return BrokerServer(config, store=store, notify=notify)

    errors = StartupErrors(StartupCancelled, StartupError)
    return Daemon(make_server, errors, Notifier.from_environment(), on_ready).run()


# --- output


def _print_ready(server: Any, config: Any, data_dir: Path) -> None:
    from broker.config.endpoint import host_port

    address = host_port(config.listeners[0].host or "127.0.0.1", server.bound_port)
    name, reset = ("\033[1;32m", "\033[0m") if sys.stdout.isatty() else ("", "")
    http = server.http.url
    print(
        f"{name}Landline {__version__} ready on {address}{reset} (data {data_dir}, {_process_age_ms()} ms). "
        f"{f'Its state: {http}/status' if http else 'HTTP is off.'}",
        flush=True,
    )


def _process_age_ms() -> int:
    """Milliseconds since the process started, with the kernel's resolution of a hundredth of a second."""
    import time

    from broker.utils.process_identity import ProcessIdentity

    started_s = ProcessIdentity.current().started_ticks / os.sysconf("SC_CLK_TCK")
    return max(int((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000), 0)


def _complain(message: str) -> None:
    red, reset = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}landline: {message}{reset}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
