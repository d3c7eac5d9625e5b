"""What came of dialling an address, and the judgement of it. Pure; `dialling` does the IO.

A client's host knows an address only as brokers advertise it. So a judgement names the entry of
``advertised.listeners``, and the broker whose properties file has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from broker.config.endpoint import host_port
from broker.server.doctor.findings import Finding, Findings, fail, ok, warn


class Dialled(Enum):
    """How far an attempt to talk to a broker came."""

    ANSWERED = "answered"
    NO_NAME = "its name does not resolve on this host"
    REFUSED = "connection refused"
    TIMED_OUT = "no connection in time"
    UNREACHABLE = "not reachable"
    WRONG_NAME = "its TLS certificate is for another name"
    UNTRUSTED = "its TLS certificate is not trusted"
    NO_TLS = "the TLS handshake failed"
    NO_LOGIN = "it refused the login"
    HUNG_UP = "it closed the connection"
    SILENT = "it accepts connections and does not answer"
    NONSENSE = "it does not answer in Kafka's protocol"
    LATE = "no result before the deadline"


class Recognised(Enum):
    """Whether a broker says that it is the expected one."""

    SAME = "same"
    OTHER = "other"
    NOT_ALLOWED = "the user may not ask"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of dialling ``host``:``port``. ``detail`` has the reason or the names of a certificate. After an
    answer, ``brokers`` has the advertised addresses by broker id. ``identity`` says whether the expected broker
    answered, and ``said`` what it said instead. ``settings`` has the configs that were asked for.
    """

    host: str
    port: int
    dialled: Dialled
    detail: str = ""
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    identity: Recognised = Recognised.UNKNOWN
    said: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    took_ms: int = 0

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)


_FIREWALL: Final = "is a firewall in between, or is the address one of another network?"
_WHAT_TO_DO: Final[Mapping[Dialled, str]] = {
    Dialled.REFUSED: "nothing listens there: is the port right, and does the broker run?",
    Dialled.TIMED_OUT: _FIREWALL,
    Dialled.UNREACHABLE: _FIREWALL,
    Dialled.NO_TLS: "is it the port of a listener with TLS, and do both sides have a TLS version in common?",
    Dialled.HUNG_UP: "is the client's security.protocol that of the listener? A TLS listener hangs up on PLAINTEXT",
    Dialled.SILENT: "is it a Kafka broker's port, and is the broker not frozen? See its journal",
    Dialled.NONSENSE: "is it a Kafka broker's port?",
    Dialled.LATE: "ask again with a longer --within",
}


def what_to_do(answer: Answer, *, config: str, change: str) -> str:
    """What to do about an address that did not answer. ``change`` says where the address is configured."""
    match answer.dialled:
        case Dialled.NO_NAME:
            return f"correct the host in {change}, or make {answer.host} known here (DNS or /etc/hosts)"
        case Dialled.WRONG_NAME:
            return (
                f"give the broker a certificate with {answer.host} among its names (ssl.keystore.location), "
                f"or a name that its certificate has, in {change}"
            )
        case Dialled.UNTRUSTED:
            return f"put the CA of the broker's certificate into ssl.truststore.location of {config}"
        case Dialled.NO_LOGIN:
            return f"correct sasl.mechanism or sasl.jaas.config in {config}, or the user on the brokers"
        case Dialled.REFUSED | Dialled.TIMED_OUT | Dialled.UNREACHABLE:
            return f"{_WHAT_TO_DO[answer.dialled]} Otherwise correct {change}"
    return _WHAT_TO_DO[answer.dialled]


def reason(answer: Answer) -> str:
    """Why the address did not answer."""
    return f"{answer.dialled.value}{f' ({answer.detail})' if answer.detail else ''}"


def judge_bootstrap(answers: Sequence[Answer], config: str) -> Findings:
    """One finding for each bootstrap address. One address that answers is enough for a client, so the others are
    warnings then. ``config`` names the client's settings.
    """
    works = any(answer.dialled is Dialled.ANSWERED for answer in answers)
    found = []
    for answer in answers:
        check = f"bootstrap {answer.address}"
        if answer.dialled is Dialled.ANSWERED:
            found.append(ok(check, f"answers in {answer.took_ms} ms, {_cluster(answer)}"))
            continue
        do = what_to_do(answer, config=config, change="bootstrap.servers")
        said = f"{answer.address}: {reason(answer)}"
        found.append((warn if works else fail)(check, said, config="bootstrap.servers", do=do))
    ids = {answer.cluster_id for answer in answers if answer.dialled is Dialled.ANSWERED}
    if len(ids) > 1:
        listed = ", ".join(
            f"{answer.address}: {answer.cluster_id}" for answer in answers if answer.cluster_id
        )
        found.append(
            fail(
                "cluster id",
                f"the bootstrap addresses are of different clusters: {listed}",
                config="bootstrap.servers",
                do="keep the addresses of one cluster",
            )
        )
    return found


def _cluster(answer: Answer) -> str:
    count = len(answer.brokers)
    return f"cluster {answer.cluster_id}, {count} broker{'' if count == 1 else 's'}"


def judge_metadata(answer: Answer) -> Findings:
    """What the Metadata answer itself says: brokers, a controller, and no address twice."""
    found = []
    if not answer.brokers:
        found.append(
            fail(
                "brokers",
                f"{answer.address} knows no broker of the cluster",
                do="does its listener exist on the brokers? See the broker's journal for the controller's requests",
            )
        )
    elif answer.controller_id < 0:
        found.append(
            fail(
                "controller",
                "the cluster has no controller now",
                do="ask again in some seconds; if it stays so, look at ZooKeeper: `landline doctor FILE` on a broker",
            )
        )
    elif answer.controller_id not in answer.brokers:
        found.append(warn("controller", f"the controller {answer.controller_id} is not among the brokers"))
    else:
        found.append(ok("controller", f"broker {answer.controller_id}"))
    by_address: dict[tuple[str, int], list[int]] = {}
    for broker_id, address in answer.brokers.items():
        by_address.setdefault(address, []).append(broker_id)
    found += [
        fail(
            f"address {host_port(*address)}",
            f"brokers {' and '.join(map(str, sorted(ids)))} advertise the same address {host_port(*address)}",
            config=f"advertised.listeners in server.properties of brokers {' and '.join(map(str, sorted(ids)))}",
            do="give each broker its own host or port there",
        )
        for address, ids in by_address.items()
        if len(ids) > 1
    ]
    return found


def judge_broker(broker_id: int, answer: Answer, cluster_id: str | None, config: str) -> Finding:
    """Judges what came of dialling the address that ``broker_id`` advertises. ``config`` names the settings that
    it was dialled with.
    """
    check = f"broker {broker_id} at {answer.address}"
    line = f"advertised.listeners in server.properties of broker {broker_id}"
    entry = f"advertised.listeners of broker {broker_id} says {answer.address}"
    if answer.dialled is not Dialled.ANSWERED:
        change = f"the entry {answer.address} of {line}"
        do = what_to_do(answer, config=config, change=change)
        return fail(check, f"{entry}: {reason(answer)}", config=line, do=do)
    if cluster_id and answer.cluster_id and answer.cluster_id != cluster_id:
        return fail(
            check,
            f"{entry}, where a broker of another cluster answers: cluster id {answer.cluster_id}, not {cluster_id}",
            config=line,
            do=f"correct the host or the port of the entry {answer.address}",
        )
    if answer.identity is Recognised.OTHER:
        return fail(
            check,
            f"{entry}, where another broker answers: {answer.said}",
            config=line,
            do=f"correct the host or the port of the entry {answer.address}: it is another broker's",
        )
    if answer.identity is Recognised.NOT_ALLOWED:
        said = f"answers in {answer.took_ms} ms; only a user with DescribeConfigs on the cluster is told which broker"
        return ok(check, said)
    if answer.identity is Recognised.UNKNOWN:
        said = f"answers in {answer.took_ms} ms, but not to which broker it is: {answer.said}"
        return warn(check, said, do="see that broker's log")
    return ok(check, f"answers in {answer.took_ms} ms, as broker {broker_id}")
