"""The checks of `landline doctor FILE`: a broker's host, by the properties of its broker.

First what the rest depends on is read, all at once: the process, ZooKeeper, the certificates. Then disks, ports and
other brokers. Findings are in the order in which one fault causes the next.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from broker import __version__
from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint, host_port
from broker.config.log_dirs import log_dir_paths
from broker.config.problems import ConfigError
from broker.config.static_check import values_of
from broker.log.free_space import DEFAULT_FLOOR, FreeSpaceFloor
from broker.server.doctor import host_facts, host_judge
from broker.server.doctor.answers import Answer, Dialled, judge_broker, what_to_do
from broker.server.doctor.dialling import Address, Dialler, dial_all, reach
from broker.server.doctor.ensemble import ask_server, ask_session
from broker.server.doctor.ensemble_judge import (
    Asked,
    EnsembleMember,
    judge_ensemble,
    judge_missing_listener,
    judge_server,
    judge_session,
)
from broker.server.doctor.findings import Finding, Findings, fail, ok, warn
from broker.server.doctor.host_judge import ClockFacts, LogDirFacts, Owner, ProcessFacts
from broker.server.doctor.in_parallel import run_all
from broker.server.stopping.own_status import OwnStatus, http_url
from broker.server.stopping.probe import Probe
from broker.server.zookeeper_access import TLS, access_from, secure_from
from broker.zookeeper.connect_string import server_addresses
from broker.zookeeper.store import StoreError

_LATE: Final = "no result before the deadline: it hangs"
_FLOOR_KEYS: Final = ("landline.log.dir.",)


@dataclass(slots=True)
class _Own:
    """This host's broker: the checked configuration, None if it is wrong, and what is known of the process."""

    config: BrokerConfig | None
    log_dirs: Sequence[str]
    shown: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ""
    process: ProcessFacts = field(default_factory=lambda: ProcessFacts(None))
    told: list[str] = field(default_factory=list)


class HostCheck:
    """One run of the command on a broker's host. ``properties`` are those of the file ``source``."""

    def __init__(self, properties: Mapping[str, str], source: str, within_s: float) -> None:
        self._properties = properties
        self._source = source
        self._within_s = within_s
        self._step_ms = int(within_s * 1000 / 6)
        self._deadline_s = time.monotonic() + within_s
        text = properties.get("broker.id", "-1").strip()
        self._broker_id = int(text) if text.isdecimal() else None

    def __call__(self) -> Findings:
        """All findings, in about ``within_s``, and never more than twice that."""
        findings, config = self._configuration()
        own = _Own(config, log_dir_paths(self._properties.get("log.dirs"), self._properties.get("log.dir")))
        addresses, bad = self._zookeeper_addresses()
        first: dict[object, Callable[[], Any]] = {
            "process": partial(self._look_at_process, own),
            "session": self._session,
            **{address: partial(self._server, address) for address in addresses},
        }
        if not addresses:
            del first["session"]
        done = run_all(first, self._deadline_s - self._within_s / 2)
        asked = done.get("session")
        seen = asked if isinstance(asked, Asked) else None
        second: dict[object, Callable[[], Any]] = {
            "certificates": partial(self._certificates, config),
            **{path: partial(self._log_dir, path, own, seen) for path in own.log_dirs},
            "ports": partial(self._ports, own),
            "brokers": partial(self._brokers, seen),
            "clock": partial(self._clock, seen),
            "memory": lambda: host_judge.judge_memory(host_facts.memory_facts(own.process.pid)),
        }
        # Dials end at the deadline by themselves. What looks at this host may be slow because the host is.
        then = run_all(second, self._deadline_s + self._within_s)
        for path in own.log_dirs:
            findings += _found(f"log dir {path}", then[path])
        findings += _found("certificates", then["certificates"])
        findings += bad
        if addresses:
            findings += self._zookeeper([done[address] for address in addresses], addresses, asked)
        findings += _found("broker", done["process"])
        findings += [warn("broker", told, config="landline.http.*") for told in own.told]
        findings += _found("ports", then["ports"])
        others = then["brokers"]
        dialled, settings = others if isinstance(others, tuple) else (_found("brokers", others), {})
        findings += dialled
        limit, used = host_facts.open_files(own.process.pid, own.shown)
        findings.append(host_judge.judge_open_files(limit, used, own.unit if own.shown else None))
        for name in ("memory", "clock"):
            findings += _found(name, then[name])
        return findings + self._versions(own, settings)

    # -- the configuration and the process

    def _configuration(self) -> tuple[Findings, BrokerConfig | None]:
        try:
            config = BrokerConfig.from_properties(self._properties)
        except ConfigError as error:
            return [
                fail(
                    "config",
                    f"{each.key}: {each.message}",
                    config=self._source if each.line is None else f"{self._source}:{each.line}",
                    do=f"correct {each.key} there, then `landline check-config {self._source}`",
                )
                for each in error.problems
            ], None
        warnings = [warn("config", text, config=self._source) for text in config.warnings]
        return warnings or [ok("config", f"{self._source}, {len(config.static_values)} configs")], config

    def _look_at_process(self, own: _Own) -> Findings:
        own.unit = host_facts.unit_of(self._broker_id)
        own.shown = host_facts.unit_properties(own.unit)
        own.status = OwnStatus(self._properties, own.told.append)()
        facts = host_facts.process_facts(own.unit, own.shown, own.log_dirs, own.status)
        own.process = replace(facts, is_asked=http_url(self._properties) is not None)
        return [host_judge.judge_process(own.process)]

    def _certificates(self, config: BrokerConfig | None) -> Findings:
        found: Findings = []
        try:
            if config is not None:
                from broker.server.tls import NoTls, make_tls

                tls = make_tls(config)
                if not isinstance(tls, NoTls):
                    listeners = tls.listeners  # type: ignore[attr-defined]  # a TlsManager
                    found += [
                        host_judge.judge_certificate(name, listener.days_left(), self._source)
                        for name, listener in listeners.items()
                    ]
            if self._properties.get(TLS, "").strip().lower() == "true":
                from broker.tls.zookeeper import ZooKeeperTls

                days = ZooKeeperTls(values_of(self._properties, ("zookeeper.ssl.",))).days_left()
                if days is not None:
                    where = "zookeeper.ssl.keystore.location"
                    found.append(host_judge.judge_certificate("ZooKeeper's client", days, where))
        except ConfigError as error:
            found += [
                fail(
                    "certificates", each.message, config=each.key, do=f"correct {each.key} in {self._source}"
                )
                for each in error.problems
            ]
        return found

    def _versions(self, own: _Own, settings: Mapping[int, Mapping[str, str]]) -> Findings:
        from broker.tls.client import openssl_version

        running = own.status.get("version")
        about = f"Python {platform.python_version()}, {openssl_version()}, Linux {platform.release()}"
        return host_judge.judge_versions(__version__, running and str(running), about, settings)

    # -- disks, ports, clock

    def _log_dir(self, path: str, own: _Own, seen: Asked | None) -> Findings:
        owner: Owner | None = host_facts.owner_of(own.process.pid, own.shown)
        facts: LogDirFacts = host_facts.log_dir_facts(path, owner, own.status)
        cluster_id = seen.cluster_id if seen is not None else None
        return host_judge.judge_log_dir(facts, self._floor(), owner, (self._broker_id, cluster_id))

    def _floor(self) -> FreeSpaceFloor:
        try:
            values = values_of(self._properties, _FLOOR_KEYS)
            return FreeSpaceFloor(
                values.int("landline.log.dir.min.free.bytes"),
                values.int("landline.log.dir.min.free.percent"),
            )
        except ConfigError:
            return DEFAULT_FLOOR

    def _ports(self, own: _Own) -> Findings:
        if own.config is None:
            return []
        wanted = [(str(each), each.host, each.port, "listeners") for each in own.config.listeners]
        http = own.config.int("landline.http.port")
        if http > 0:
            wanted.append(("HTTP", own.config.str("landline.http.host"), http, "landline.http.port"))
        found = []
        for name, host, port, config in wanted:
            if port > 0:
                accepts = reach((_local(host), port), self._step_ms) is None
                running = own.process.pid is not None
                found.append(
                    host_judge.judge_port(name, port, accepts=accepts, running=running, config=config)
                )
        return found

    def _clock(self, seen: Asked | None) -> Findings:
        synchronised, max_error_ms = host_facts.clock_state()
        offsets_ms = seen.offsets_ms if seen is not None else {}
        return host_judge.judge_clock(ClockFacts(synchronised, max_error_ms, offsets_ms), self._broker_id)

    # -- ZooKeeper

    def _zookeeper_addresses(self) -> tuple[list[Address], Findings]:
        connect = self._properties.get("zookeeper.connect", "")
        try:
            return server_addresses(connect), []
        except ValueError:
            do = f"correct it in {self._source}: host:port,host:port/chroot"
            said = f"{connect!r} has a port that is no number"
            return [], [fail("zookeeper", said, config="zookeeper.connect", do=do)]

    def _server(self, address: Address) -> EnsembleMember:
        return ask_server(address, secure_from(self._properties), self._step_ms)

    def _session(self) -> Asked:
        within_ms = int(self._within_s * 1000 / 2.5)
        return ask_session(self._properties["zookeeper.connect"], access_from(self._properties), within_ms)

    def _zookeeper(self, results: Sequence[Any], addresses: Sequence[Address], asked: Any) -> Findings:
        servers = [
            each
            if isinstance(each, EnsembleMember)
            else EnsembleMember(address, Dialled.LATE, "" if each is None else str(each))
            for address, each in zip(addresses, results, strict=True)
        ]
        serve = isinstance(asked, Asked)
        found = [judge_server(server, others_serve=serve) for server in servers]
        found += judge_ensemble(servers)
        if not serve:
            asked = _LATE if asked is None else _why(asked)
        sets_acls = self._properties.get("zookeeper.set.acl", "").strip().lower() == "true"
        return found + judge_session(asked, sets_acls=sets_acls)

    # -- the other brokers

    def _brokers(self, seen: Asked | None) -> tuple[Findings, Mapping[int, Mapping[str, str]]]:
        """Dials every advertised listener of every registered broker: as a broker by the inter-broker listener,
        and the others as far as TCP.
        """
        if seen is None or not seen.registered:
            return [], {}
        try:
            probe = Probe.of(self._properties)
        except ConfigError as error:
            said = f"cannot be asked by the inter-broker listener: {error}"
            return [fail("brokers", said, config=self._source, do="correct the configuration first")], {}
        listener = self._inter_broker()
        dialler = Dialler(self._step_ms, probe.security, probe.login)
        between: dict[tuple[Address, int | None], object] = {}
        others: dict[tuple[Address, int | None], Endpoint] = {}
        found: Findings = []
        for broker_id, registration in seen.registered.items():
            if registration.endpoint(listener) is None:
                found.append(judge_missing_listener(broker_id, listener, registration))
            for endpoint in registration.endpoints:
                key = (endpoint.host, endpoint.port), broker_id
                if endpoint.listener_name == listener:
                    between[key] = endpoint
                else:
                    others[key] = endpoint

        def dial(address: Address, broker_id: int | None) -> Answer:
            if (address, broker_id) in between:
                return dialler(address, broker_id)
            return reach(address, self._step_ms) or Answer(*address, Dialled.ANSWERED)

        answers = dial_all(dial, {**between, **others}, self._deadline_s - 0.5)
        found += [self._judged(key, answer, others.get(key), seen) for key, answer in answers.items()]
        return found, {key[1] or 0: answer.settings for key, answer in answers.items() if answer.settings}

    def _inter_broker(self) -> str:
        name = self._properties.get("inter.broker.listener.name")
        return (name or self._properties.get("security.inter.broker.protocol") or "PLAINTEXT").strip().upper()

    def _judged(
        self, key: tuple[Address, int | None], answer: Answer, other: Endpoint | None, seen: Asked
    ) -> Finding:
        broker_id = key[1] or 0
        if other is None:
            return judge_broker(broker_id, answer, seen.cluster_id, self._source)
        check = f"broker {broker_id} at {host_port(*key[0])}"
        if answer.dialled is Dialled.ANSWERED:
            return ok(check, f"{other.listener_name} accepts connections")
        line = f"advertised.listeners in server.properties of broker {broker_id}"
        do = what_to_do(answer, config=self._source, change=f"the entry {other} of {line}")
        said = f"advertised.listeners says {other}: {answer.dialled.value} on this host"
        return warn(check, said, config=line, do=f"{do} (nothing, if only clients are to reach it)")


def _local(host: str) -> str:
    """The address at which this host reaches a listener that is bound to ``host``."""
    return "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - told apart, not bound


def _why(error: BaseException) -> str:
    return str(error) if isinstance(error, StoreError | ConfigError | OSError) else repr(error)


def _found(check: str, result: Any) -> Findings:
    """The findings of one check, or that it hangs or failed itself."""
    if isinstance(result, list):
        return result
    if result is None:
        return [fail(check, _LATE, do="see dmesg for the disk or the network; or ask again with --within 60")]
    return [fail(check, f"cannot be looked at: {_why(result)}", do="run the command as root")]
