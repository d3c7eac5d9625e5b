"""All TLS listeners of a broker: what the configuration of each says, and what becomes of changes."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.problems import ConfigError
from broker.metrics.registry import Metrics
from broker.tls import manager
from broker.tls.listener_tls import now_utc
from broker.tls.manager import TlsManager
from tests.support.certificates import DAY, Stores


class Site(Stores):
    """Stores, and a configuration that names them, at a time that the test says."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.late = dt.timedelta()

    def now(self) -> dt.datetime:
        return now_utc() + self.late

    def config(self, **changes: str) -> BrokerConfig:
        """``listener_name_outside_ssl_x`` is listener.name.outside.ssl.x."""
        props = {
            "landline.standalone": "true",
            "log.dirs": "/d",
            "listeners": "INSIDE://:0,OUTSIDE://:0,PLAINTEXT://:0",
            "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SSL,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            **self.configs,
            **{name.replace("_", "."): text for name, text in changes.items()},
        }
        return BrokerConfig.from_properties(props)

    def manager(self, **changes: str) -> TlsManager:
        return TlsManager(self.config(**changes), now=self.now)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_listener_has_its_own_values_where_it_has_any_and_the_brokers_otherwise(site: Site) -> None:
    own = str(site.ca.issue("outside").write_pem(site.directory / "outside.pem"))
    made = site.manager(
        listener_name_outside_ssl_keystore_location=own,
        listener_name_outside_ssl_client_auth="required",
        ssl_client_auth="requested",
    )
    assert set(made.listeners) == {"INSIDE", "OUTSIDE"}
    inside, outside = made.listeners["INSIDE"].state, made.listeners["OUTSIDE"].state
    assert inside.settings.key_store.location == str(site.pem)
    assert outside.settings.key_store.location == own
    assert (inside.server.verify_mode, outside.server.verify_mode) == (ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED)
    assert made.between_brokers is made.listeners["INSIDE"]
    assert outside.client is None
    assert inside.client is not None
    assert inside.client.check_hostname


def test_brokers_check_no_host_names_where_the_algorithm_is_empty(site: Site) -> None:
    made = site.manager(ssl_endpoint_identification_algorithm="")
    client = made.listeners["INSIDE"].state.client
    assert client is not None
    assert not client.check_hostname
    assert client.verify_mode is ssl.CERT_REQUIRED


def test_the_problems_of_all_listeners_are_told_at_once_with_the_key_that_was_set(site: Site) -> None:
    with pytest.raises(ConfigError) as refused:
        site.manager(
            listener_name_outside_ssl_keystore_location="/nowhere", ssl_truststore_location="/nowhere/either"
        )
    told = {(problem.key, problem.message.partition(":")[0]) for problem in refused.value.problems}
    assert told == {
        ("listener.name.outside.ssl.keystore.location", "/nowhere does not exist"),
        ("ssl.truststore.location", "/nowhere/either does not exist"),
    }


def test_changed_files_are_taken_when_they_are_looked_at(site: Site) -> None:
    made = site.manager()
    before = {name: listener.state for name, listener in made.listeners.items()}
    made.look_at_files()
    assert {name: listener.state for name, listener in made.listeners.items()} == before
    site.ca.issue(ends=33 * DAY).write_pem(site.pem)
    made.look_at_files()
    assert all(32 < listener.days_left() < 33 for listener in made.listeners.values())


def test_a_bad_file_is_told_once_and_leaves_what_was(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    made = site.manager(listener_name_outside_ssl_keystore_location=str(site.pem))
    site.pem.write_bytes(b"-----BEGIN")
    made.look_at_files()
    made.look_at_files()
    told = capsys.readouterr().out
    assert told.count("tls_reload_failed") == 2  # once for each listener
    assert "listener.name.outside.ssl.keystore.location" in told
    assert all(listener.days_left() > 80 for listener in made.listeners.values())


def test_changed_keys_are_checked_before_they_are_written_and_taken_up_afterwards(site: Site) -> None:
    made = site.manager()
    own = str(site.ca.issue(ends=20 * DAY).write_pem(site.directory / "new.pem"))
    key = "listener.name.outside.ssl.keystore.location"
    good = site.config().with_dynamic({key: own})
    bad = site.config().with_dynamic({key: "/nowhere"})
    made.check(good)
    with pytest.raises(ConfigError, match=f"{key}: /nowhere does not exist"):
        made.check(bad)
    assert made.listeners["OUTSIDE"].days_left() > 80  # a check changes nothing
    made.update(good)
    assert made.listeners["OUTSIDE"].days_left() < 20
    assert made.listeners["INSIDE"].days_left() > 80
    made.update(site.config())  # the key is deleted again
    assert made.listeners["OUTSIDE"].days_left() > 80


def test_a_certificate_that_ends_soon_is_told_once_a_day(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    made = site.manager()
    made.look_at_files()
    assert "certificate_expires" not in capsys.readouterr().out
    site.late = 80 * DAY
    made.look_at_files()
    made.look_at_files()
    assert capsys.readouterr().out.count("certificate_expires") == 2  # once for each listener
    site.late = 81 * DAY
    made.look_at_files()
    assert "days_left=9.0" in capsys.readouterr().out


def test_a_sasl_listener_asks_for_certificates_only_by_a_key_of_its_own() -> None:
    """KIP-684. SASL itself is another part's: only the settings are read here."""
    props = {
        "landline.standalone": "true",
        "log.dirs": "/d",
        "listeners": "SSL://:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
    }
    config = BrokerConfig.from_properties(props)
    assert manager.settings_of(config)["SSL"][0].client_auth == "required"
    endpoints = [manager.replace(config.listeners[0], security_protocol="SASL_SSL")]
    assert [settings.client_auth for settings in _settings(config, endpoints)] == ["none"]
    own = config.with_dynamic({"listener.name.ssl.ssl.client.auth": "required"})
    assert [settings.client_auth for settings in _settings(own, endpoints)] == ["required"]


def _settings(config: BrokerConfig, endpoints: list[object]) -> list[manager.TlsSettings]:
    class _WithSasl:
        listeners = endpoints
        for_listener = config.for_listener

    return [settings for settings, _ in manager.settings_of(_WithSasl()).values()]  # type: ignore[arg-type]


def test_the_metrics_have_a_row_for_each_listener(site: Site) -> None:
    metrics = Metrics()
    site.manager().register_metrics(metrics)
    rows = {each.name: each.instrument for each in metrics.registered()}
    assert set(rows) == {
        "landline_ssl_certificate_days_left",
        "landline_ssl_handshakes_total",
        "landline_ssl_handshakes_failed_total",
        "landline_ssl_handshakes_in_progress",
    }
    days = rows["landline_ssl_certificate_days_left"].function()  # type: ignore[union-attr]
    assert {labels: round(value) for labels, value in days.items()} == {("INSIDE",): 90, ("OUTSIDE",): 90}  # type: ignore[union-attr]


def test_the_log_says_what_each_listener_has(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.manager().tell()
    told = capsys.readouterr().out
    assert told.count("tls_listener") == 2
    assert "CN=broker,C=DE" in told
    assert "off (landline.ssl.kernel.enable)" in told
