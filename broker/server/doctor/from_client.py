"""The checks of `landline doctor --bootstrap-server`: what a client of this host meets.

The settings are those of Kafka's clients, as its tools take them by ``--command-config``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from broker.config.jaas import read_jaas
from broker.config.problems import ConfigError, Problem
from broker.config.static_check import values_of
from broker.replication.broker_channel import ChannelSecurity
from broker.sasl.client import ClientLogin
from broker.server.doctor.answers import Answer, Dialled, judge_bootstrap, judge_broker, judge_metadata
from broker.server.doctor.dialling import Address, Dialler, dial_all
from broker.server.doctor.findings import Findings, fail

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
LOGINS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def check(bootstrap: str, properties: Mapping[str, str], source: str, within_s: float) -> Findings:
    """All findings, in less than ``within_s``. ``source`` names the file of the ``properties``."""
    try:
        addresses = read_addresses(bootstrap or properties.get("bootstrap.servers", ""))
        security, login = _security(properties), _login(properties)
    except ConfigError as error:
        return [
            fail("client config", f"{each.key} {each.message}", config=source, do=f"correct {each.key}")
            for each in error.problems
        ]
    # Half of the time for the bootstrap addresses, the rest for the brokers that they name.
    deadline_s = time.monotonic() + within_s
    dialler = Dialler(int(within_s * 1000 / 6), security, login)
    asked: dict[tuple[Address, int | None], object] = {(address, None): None for address in addresses}
    first = list(dial_all(dialler, asked, deadline_s - within_s / 2).values())
    findings = judge_bootstrap(first, source)
    answered = next((answer for answer in first if answer.dialled is Dialled.ANSWERED), None)
    if answered is None:
        return findings
    findings += judge_metadata(answered)
    return findings + _brokers(answered, dialler, source, deadline_s)


def _brokers(answered: Answer, dialler: Dialler, source: str, deadline_s: float) -> Findings:
    wanted: dict[tuple[Address, int | None], object] = {
        (address, broker_id): None for broker_id, address in sorted(answered.brokers.items())
    }
    found = dial_all(dialler, wanted, deadline_s)
    return [
        judge_broker(int(broker_id or 0), answer, answered.cluster_id, source)
        for (_, broker_id), answer in found.items()
    ]


def read_addresses(text: str) -> list[Address]:
    """The addresses of ``bootstrap.servers``. Raises ConfigError."""
    found = []
    for entry in filter(None, map(str.strip, text.split(","))):
        host, colon, port = entry.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise _problem("bootstrap.servers", f"has {entry!r}, which is no host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise _problem("bootstrap.servers", "is missing: give --bootstrap-server host:port")
    return list(dict.fromkeys(found))


def _problem(key: str, message: str) -> ConfigError:
    return ConfigError([Problem(key, None, message)])


def _protocol(properties: Mapping[str, str]) -> str:
    protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise _problem("security.protocol", f"is {protocol!r}, none of {', '.join(PROTOCOLS)}")
    return protocol


def _security(properties: Mapping[str, str]) -> ChannelSecurity | None:
    if not _protocol(properties).endswith("SSL"):
        return None
    from broker.tls.client import ClientTls

    return ClientTls(values_of(properties, ("ssl.",)))


def _login(properties: Mapping[str, str]) -> ClientLogin | None:
    if not _protocol(properties).startswith("SASL_"):
        return None
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in LOGINS:
        raise _problem("sasl.mechanism", f"is {mechanism}; this command logs in only by {', '.join(LOGINS)}")
    try:
        entry = read_jaas(properties.get("sasl.jaas.config", ""))
        return ClientLogin(mechanism, entry.options["username"], entry.options["password"])
    except ValueError as error:
        raise _problem("sasl.jaas.config", str(error)) from error
    except KeyError as error:
        raise _problem("sasl.jaas.config", f"has no option {error.args[0]}") from error
