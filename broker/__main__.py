"""The command `landline`: loads and checks the configuration, runs the command.

Each command imports its own heavy modules, so that start-up stays fast. `arguments` parses the command line,
`server.daemon` handles signals and systemd, and BrokerServer defines the order in which the parts start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        print(f"landline {__version__}")
        return EXIT_OK
    if argv is None and arguments and arguments[0] in _DAEMONS:  # not when a caller runs main()
        from broker.utils.stop_signals import block_signals

        block_signals()
    from broker.arguments import make_parser
    from broker.utils.misfits import pass_over_misfits

    pass_over_misfits()
    options = make_parser(_default_data_dir()).parse_args(arguments)
    command = _COMMANDS[options.command]
    try:
        return command(options)
    except KeyboardInterrupt:  # before the daemon handles signals
        return EXIT_INTERRUPTED


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111 - never raises
    return Path(base) / "landline"


# --- commands


def _check_config(options: Options) -> int:
    from broker.log.dirs.formats import unreadable_files

    config = _load(options.file, {}, options.override)
    if config is None:
        return EXIT_CONFIG
    for warning in config.warnings:
        print(f"{options.file}: warning: {warning}")
    if unreadable := unreadable_files(map(Path, config.log_dirs)):
        print(unreadable, file=sys.stderr)
        return EXIT_CONFIG
    print(f"{options.file}: good, {len(config.static_values)} configs are set")
    return EXIT_OK if options.since is None else _differences(options)


def _differences(options: Options) -> int:
    """Tells what a running broker with the older file would do with this one."""
    from broker.config.live_keys import differences
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties

    try:
        found = differences(read_properties(options.since), read_properties(options.file))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    if not any(found):
        print(f"no config differs from {options.since}")
    for names, what in ((found.live, "changed by a reload"), (found.restart, "needs a restart")):
        for name in names:
            print(f"{name}: {what}")
    return EXIT_OK


def _deregister(options: Options) -> int:
    """Reads only the data directories from the configuration: a crashed broker's failover waits for
    this command.
    """
    from broker.config.log_dirs import log_dir_paths
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties
    from broker.server.registration.deregister import deregister
    from broker.zookeeper.session_end import end_session

    try:
        texts = {**read_properties(options.file), **dict(options.override)}
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    end: Callable[[Any, float], Any] = end_session
    if texts.get("zookeeper.ssl.client.enable", "").strip().lower() == "true":
        from broker.server.zookeeper_access import secure_from

        try:
            end = partial(end_session, secure=secure_from(texts))
        except ConfigError as error:
            print(error, file=sys.stderr)
            return EXIT_CONFIG
    report = deregister(
        [Path(path) for path in log_dir_paths(texts.get("log.dirs"), texts.get("log.dir"))], end
    )
    took_ms = _process_age_ms()  # before further modules are loaded
    structlog = _logging()
    getattr(structlog.get_logger("broker"), report.level)(report.event, **report.fields, took_ms=took_ms)
    return EXIT_OK


def _turn(options: Options) -> int:
    from broker.server.stopping.turn_command import await_return, may_stop

    run = await_return if hasattr(options, "unit") else may_stop
    return _with_properties(run, options, options.file, options.override, log_level="warning")


def _metadata(options: Options) -> int:
    from broker.server.metadata_command import run

    return _with_properties(run, options, options.config)


def _credentials(options: Options) -> int:
    from broker.server.credentials_command import run

    return _with_properties(run, options, options.config)


def _access(options: Options) -> int:
    from broker.server.access_command import run

    return _with_properties(run, options, options.config, options.override)


def _topics(options: Options) -> int:
    from broker.server.topics_command import run

    return _with_properties(run, options, options.config, options.override)


def _moves(options: Options) -> int:
    from broker.server.moves_command import run

    return _with_properties(run, options, options.file, options.override)


def _doctor(options: Options) -> int:
    from broker.server.doctor_command import run

    return _with_properties(run, options, options.file or options.command_config, options.override)


def _with_properties(
    run: Callable[[Options, Any, Callable[[str], None]], int],
    options: Options,
    file: str | None,
    overrides: Sequence[tuple[str, str]] = (),
    *,
    log_level: str = "error",
) -> int:
    """Runs a command with the properties of a broker's file, if one is given, which are not checked."""
    from broker.config.problems import ConfigError
    from broker.config.properties import read_properties

    try:
        properties: dict[str, str] = {} if file is None else read_properties(file)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIG
    properties.update(overrides)
    os.environ.setdefault("LANDLINE_LOG_LEVEL", log_level)
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
    from broker.server.config_file import ConfigFile

    file = ConfigFile(options.file, options.override, _check_files)
    config = _load(options.file, {}, options.override)
    if config is None:
        return EXIT_CONFIG
    return _serve(config, store_path=None, on_ready=lambda _: None, file=file)


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
        _check_files(config, properties)
        return config
    except ConfigError as error:
        print(error, file=sys.stderr)
        count = len(error.problems)
        _complain(
            f"{count} {'problem' if count == 1 else 'problems'} in the configuration; nothing was started"
        )
        return None


def _check_files(config: Any, properties: Any) -> None:
    """Raises ConfigError if a key store, a trust store, a Kerberos key or the file of HTTP tokens cannot be used.
    The problems get their lines in the properties file.
    """
    from broker.config.http_keys import TOKEN_FILE, has_tls
    from broker.config.problems import ConfigError

    try:
        if config.opt_str(TOKEN_FILE):
            from broker.config.token_file import read_tokens

            read_tokens(config.str(TOKEN_FILE))
        if has_tls(config) or config.bool("zookeeper.ssl.client.enable"):
            _check_tls(config)
        _check_kerberos(config)
    except ConfigError as error:
        lines = properties.lines
        found = [problem._replace(line=lines.get(problem.key)) for problem in error.problems]
        raise ConfigError(found, properties.source) from error


def _check_kerberos(config: Any) -> None:
    if any(listener.kerberos for listener in config.sasl.listeners.values()):
        from broker.config.problems import ConfigError, Problem

        try:
            from broker.server.kerberos import check_kerberos
        except ImportError as error:
            message = f"GSSAPI: the package gssapi cannot be loaded; is libgssapi-krb5-2 installed? {error}"
            raise ConfigError([Problem("sasl.enabled.mechanisms", None, message)]) from error
        check_kerberos(config)


def _check_tls(config: Any) -> None:
    _logging()
    from broker.server.tls import make_tls
    from broker.server.zookeeper_access import access_of

    access_of(config)
    make_tls(config)


def _serve(
    config: Any, store_path: Path | None, on_ready: Callable[[Any], None], file: Any | None = None
) -> int:
    """Runs a broker until it stops."""
    log = _logging().get_logger("broker")
    for warning in config.warnings:
        log.warning("config_warning", message=warning)
    from broker.utils.lean_import import import_lean

    # While there is one thread, and before the broker's modules import it whole. A log-in by SASL needs it whole.
    is_lean = store_path is None and not config.opt_str("landline.zookeeper.sasl.jaas.config")
    for library in ("crc32c", "kazoo.client") if is_lean else ("crc32c",):
        import_lean(library)
    from broker.utils.compiled import StaleCodeError, compiled_by
    from broker.utils.misfits import misfit

    try:
        compiled_by()
    except StaleCodeError as error:
        _complain(str(error))
        return EXIT_FAILED
    if (reason := misfit()) is not None:
        log.warning(
            "compiled_code_does_not_load",
            error=reason,
            action="the broker runs its sources, which take more CPU; install it again on this host",
        )
    from broker.server.broker_server import BrokerServer, StartupCancelled, StartupError
    from broker.server.daemon import Daemon, StartupErrors
    from broker.utils.systemd import Notifier

    def make_server(notify: Callable[[str], None]) -> Any:
        store = None
        if store_path is not None:
            from broker.zookeeper.embedded import EmbeddedStore

            store = EmbeddedStore(store_path)
        return BrokerServer(config, store=store, notify=notify, config_file=file)

    errors = StartupErrors(StartupCancelled, StartupError)
    notifier = Notifier.from_environment()
    return Daemon(make_server, errors, notifier, on_ready, reloads=file is not None).run()


_COMMANDS: Final[Mapping[str, Callable[[Options], int]]] = {
    "start": _start,
    "standalone": _standalone,
    "deregister": _deregister,
    "may-stop": _turn,
    "await-return": _turn,
    "metadata": _metadata,
    "credentials": _credentials,
    "access": _access,
    "topics": _topics,
    "rebalance": _moves,
    "drain": _moves,
    "fill": _moves,
    "doctor": _doctor,
    "check-config": _check_config,
}


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
