"""Builds the shell commands that the launcher sends, and parses their output. Pure: nothing is run here.

The pyspark package has ``spark-daemon.sh`` but not start-master, start-worker and workers.sh. This module
replaces those three: it builds class names and arguments, and the loop over the workers, which runs on the
master. Unlike ``workers.sh``, the loop reports every exit code, as a line ``@exit HOST CODE`` that no
daemon prints.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from sparkctl.inventory import SSH_PORT, Host, SparkCluster, bracketed

EXIT_MARK = "@exit"
# Exit codes of Spark's status command: 0 running, 1 a pid file without its process, 2 not running.
STATUS_RUNNING = 0
SSH_OPTIONS = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"
HOST_TIMEOUT_S = 90
SUDO_PROMPT = "landline-sudo-password: "
BEGIN_MARK, OPEN_MARK, END_MARK, BYTES_MARK = "@begin", "@open", "@end", "@bytes"

_SSH = f"timeout {HOST_TIMEOUT_S} ssh {SSH_OPTIONS}"
# After the name, the address and the command come options of ssh for this host.
_PUSH = f"""push() {{ {_SSH} "${{@:4}}" "$2" "$3" </dev/null 2>&1 | sed "s/^/$1: /"; return "${{PIPESTATUS[0]}}"; }}"""
_STAMPED_PUSH = f"""LC_ALL=C
push() {{
    echo "{BEGIN_MARK} $1 $EPOCHREALTIME"
    {_SSH} -o LogLevel=VERBOSE "${{@:4}}" "$2" "echo {OPEN_MARK}; $3" </dev/null 2>&1 | while IFS= read -r line; do
        case $line in
        {OPEN_MARK}) echo "{OPEN_MARK} $1 $EPOCHREALTIME" ;;
        "Transferred: sent "*) words=(${{line//,/}}); echo "{BYTES_MARK} $1 $((words[2] + words[4]))" ;;
        "Authenticated to "* | "Bytes per second: "*) ;;
        *) echo "$1: $line" ;;
        esac
    done
    set -- "$1" "${{PIPESTATUS[0]}}"
    echo "{END_MARK} $1 $EPOCHREALTIME"
    return "$2"
}}"""


class Role(Enum):
    """The kind of a daemon. The value is the class that Spark starts for it."""

    MASTER = "org.apache.spark.deploy.master.Master"
    WORKER = "org.apache.spark.deploy.worker.Worker"
    HISTORY = "org.apache.spark.deploy.history.HistoryServer"


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon of one host; workers of the same host are told apart by their ``number``, from 1."""

    role: Role
    host: Host
    number: int = 1

    @property
    def name(self) -> str:
        """The host's name, which alone means its first worker."""
        if self.role is Role.WORKER:
            return self.host.name if self.number == 1 else f"{self.host.name}#{self.number}"
        return f"{self.host.name}#{self.role.name.lower()}"


def workers_of(cluster: SparkCluster) -> list[Daemon]:
    """The workers, host by host."""
    counts = cluster.workers_per_host
    return [
        Daemon(Role.WORKER, host, number)
        for host in cluster.workers
        for number in range(1, counts.get(host.name, 1) + 1)
    ]


def others_of(cluster: SparkCluster) -> list[Daemon]:
    """What is neither a worker nor the master that the launcher connects to: standbys and the history server."""
    history = [Daemon(Role.HISTORY, cluster.history)] if cluster.history else []
    return [*(Daemon(Role.MASTER, host) for host in cluster.standbys), *history]


@dataclass(frozen=True, slots=True)
class HostResult:
    """The result of a command about one daemon: its exit code, and its output lines, prefixed with the
    daemon's name.
    """

    host: str
    exit_code: int
    lines: tuple[str, ...]


def start_command(cluster: SparkCluster, role: Role, host: Host, number: int = 1) -> str:
    """Starts a daemon, then checks its status: ``spark-daemon.sh start`` exits 0 even if the JVM died."""
    daemon = Daemon(role, host, number)
    start = _daemon(cluster, "start", daemon, *_arguments(cluster, daemon))
    return f"unset SPARK_NO_DAEMONIZE; {start} || exit; {_daemon(cluster, 'status', daemon)}"


def stop_command(cluster: SparkCluster, daemon: Daemon) -> str:
    """Stops a daemon and waits until its process is gone: ``spark-daemon.sh stop`` only sends the signal."""
    return (
        f"{_pid(cluster, daemon)}; {_daemon(cluster, 'stop', daemon)} || exit; "
        'for _ in $(seq 150); do [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null || exit 0; sleep 0.1; done; '
        'echo "process $pid is still there 15 s after SIGTERM"; exit 1'
    )


def status_command(cluster: SparkCluster, daemon: Daemon) -> str:
    """Checks whether the daemon runs. For the exit codes see ``STATUS_RUNNING``."""
    return _daemon(cluster, "status", daemon)


def decommission_command(cluster: SparkCluster, daemon: Daemon) -> str:
    """Tells a worker to take no more executors, and those that it has to give their blocks away and end."""
    return _daemon(cluster, "decommission", daemon)


def executors_command(cluster: SparkCluster, daemon: Daemon) -> str:
    """Exits 0 if the worker has no executor any more, 3 if it has: they are its child processes.

    They are JVMs. ``spark-class`` may have left another child to its worker, a shell that ended.
    """
    return f'{_pid(cluster, daemon)}; [ -z "$pid" ] || ! pgrep --parent "$pid" java >/dev/null || exit 3'


def log_command(cluster: SparkCluster, daemon: Daemon, lines: int) -> str:
    """Prints the last lines of a daemon's log."""
    file = f'"$SPARK_LOG_DIR/spark-$SPARK_IDENT_STRING-{daemon.role.value}-{daemon.number}-$HOSTNAME.out"'
    return f"{_environment(cluster)}; tail --lines={lines} {file}"


def defaults_command(cluster: SparkCluster) -> str:
    """Prints spark-defaults.conf. It may have the cluster's secret."""
    return shlex.join(["cat", f"{cluster.conf_dir}/spark-defaults.conf"])


def _environment(cluster: SparkCluster) -> str:
    return f". {shlex.quote(f'{cluster.conf_dir}/spark-env.sh')}"


def _pid(cluster: SparkCluster, daemon: Daemon) -> str:
    """Sets ``pid`` to the daemon's process id, or to nothing."""
    file = f'"$SPARK_PID_DIR/spark-$SPARK_IDENT_STRING-{daemon.role.value}-{daemon.number}.pid"'
    return f"{_environment(cluster)}; pid=$(cat {file} 2>/dev/null)"


def _arguments(cluster: SparkCluster, daemon: Daemon) -> list[str]:
    address, number = bracketed(daemon.host.peer_address), daemon.number
    if daemon.role is Role.HISTORY:
        return []
    if daemon.role is Role.MASTER:
        ports = ["--port", str(cluster.master_port), "--webui-port", str(cluster.master_ui_port)]
        return ["--host", address, *ports]
    # Each worker of a host removes what it does not know from its directory.
    own = ["--work-dir", f"{cluster.state_dir}/work-{number}"] if number > 1 else []
    port = str(cluster.worker_ui_port + number - 1)
    return ["--host", address, "--webui-port", port, *own, cluster.url]


def _daemon(cluster: SparkCluster, action: str, daemon: Daemon, *arguments: str) -> str:
    program = f"{cluster.home}/sbin/spark-daemon.sh"
    words = [program, "--config", cluster.conf_dir, action, daemon.role.value, str(daemon.number)]
    return shlex.join([*words, *arguments])


def as_spark(cluster: SparkCluster, login: str, command: str, *, asks: bool = False) -> str:
    """Wraps ``command`` in a shell of Spark's user, for a connection that logged in as ``login``.

    With ``asks``, sudo may ask for a password, by ``SUDO_PROMPT``.
    """
    shell = ["bash", "-c", command]
    if login == cluster.user:
        return shlex.join(shell)
    if login == "root":
        return shlex.join(["runuser", "-u", cluster.user, "--", *shell])
    sudo = ["sudo", "-S", "-p", SUDO_PROMPT] if asks else ["sudo", "-n"]
    return shlex.join([*sudo, "-u", cluster.user, "--", *shell])


def push_script(
    commands: Iterable[tuple[Host | Daemon, str]], *, parallel: bool = True, stamped: bool = False
) -> str:
    """The script that the master runs: it runs each command on its worker by ssh and reports every exit code.

    It runs them all at once, as Spark's ``workers.sh`` does, or one after another, as ``workers.sh`` does
    when ``SPARK_SSH_FOREGROUND`` is set. A ``stamped`` script also prints times, in seconds since 1970:
    ``@begin HOST TIME``, ``@open HOST TIME`` when the worker's shell runs, and ``@end HOST TIME``. It also
    prints ``@bytes HOST COUNT``, the bytes that ssh sent and received, if ssh ended normally.
    """
    pushes, waits = [], []
    for number, (target, command) in enumerate(commands):
        host = target.host if isinstance(target, Daemon) else target
        name, address = shlex.quote(target.name), shlex.quote(host.peer_address)
        push = " ".join([f"push {name} {address} {shlex.quote(command)}", *_options(host)])
        if parallel:
            pushes.append(f"{push} & pid{number}=$!")
            waits.append(f"wait $pid{number}; echo {EXIT_MARK} {name} $?")
        else:
            pushes.append(f"{push}; echo {EXIT_MARK} {name} $?")
    return "\n".join([_STAMPED_PUSH if stamped else _PUSH, *pushes, *waits])


def _options(host: Host) -> list[str]:
    """Options of ssh for a host whose sshd has another port. known_hosts has the addresses without ports."""
    if host.peer_port == SSH_PORT:
        return []
    return ["-p", str(host.peer_port), "-o", shlex.quote(f"HostKeyAlias={host.peer_address}")]


def push_results(names: Iterable[str], output: str) -> list[HostResult]:
    """The results in the output of ``push_script``, one per name. A host without an exit code gets 255."""
    lines = output.splitlines()
    codes = {}
    for mark, name, code in (line.split() for line in lines if line.startswith(f"{EXIT_MARK} ")):
        assert mark == EXIT_MARK
        codes[name] = int(code)
    return [
        HostResult(name, codes.get(name, 255), tuple(line for line in lines if line.startswith(f"{name}: ")))
        for name in names
    ]
