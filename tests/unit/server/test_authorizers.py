"""The authorizer that ``authorizer.class.name`` names, or why there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event

import pytest

from broker.config.broker_config import BrokerConfig
from broker.security.acl_authorizer import AclAuthorizer
from broker.security.authorizer import Authorizer
from broker.server.authorizers import make_authorizer, start_access
from broker.server.lifecycle.startup_steps import StartupError, StartupSteps
from broker.zookeeper.embedded import EmbeddedStore

BASE = {"broker.id": "1", "zookeeper.connect": "z:2181", "log.dirs": "/d"}
CODE = """
from broker.security.authorizer import Authorizer, AuthorizerError

class Good(Authorizer):
    closed = False
    def start(self, settings):
        self.settings = settings
    def authorize(self, requester, operation, resource_type, name):
        return True
    def close(self):
        type(self).closed = True

class Unwilling(Good):
    def start(self, settings):
        raise AuthorizerError("authorizer.file is missing")

class Failing(Good):
    def start(self, settings):
        1 / 0

class Half(Authorizer):
    pass

class Other:
    pass

made = Good()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_a_test.py").write_text(CODE)
    (tmp_path / "broken_rules_of_a_test.py").write_text("import nothing_of_this_name")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "rules_of_a_test", raising=False)


def config(name: str, **settings: str) -> BrokerConfig:
    own = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.from_properties({**BASE, "authorizer.class.name": name, **own})


def store() -> EmbeddedStore:
    made = EmbeddedStore()
    made.connect()
    return made


def steps() -> StartupSteps:
    return StartupSteps(Event(), lambda _text: None)


def test_without_a_name_there_is_no_authorizer() -> None:
    assert make_authorizer(config(""), store()) is None
    assert start_access(config(" "), store(), steps()) is None


def test_kafkas_name_is_the_built_in_authorizer() -> None:
    assert isinstance(
        make_authorizer(config("kafka.security.authorizer.AclAuthorizer"), store()), AclAuthorizer
    )


@pytest.mark.parametrize("name", ["rules_of_a_test:Good", "rules_of_a_test.Good"])
def test_a_class_of_ones_own_is_made_started_with_its_settings_and_closed(name: str) -> None:
    started = steps()
    access = start_access(config(name, authorizer_file="/f", super_users="root"), store(), started)
    assert access is not None
    assert isinstance(access.authorizer, Authorizer)
    assert access.authorizer.settings == {"authorizer.file": "/f", "super.users": "root"}  # type: ignore[attr-defined]
    assert not access.authorizer.closed  # type: ignore[attr-defined]
    started.undo_all()
    assert access.authorizer.closed  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module:Rules", "No module named 'no_such_module'"),
        ("broken_rules_of_a_test:Rules", "No module named 'nothing_of_this_name'"),
        ("rules_of_a_test:Missing", "has no attribute 'Missing'"),
        ("rules_of_a_test:Other", "no subclass of broker.security.authorizer.Authorizer"),
        ("rules_of_a_test:made", "no subclass of broker.security.authorizer.Authorizer"),
        ("rules_of_a_test:Half", "abstract"),
        ("rules_of_a_test:Unwilling", "authorizer.file is missing"),
        ("rules_of_a_test:Failing", "division by zero"),
    ],
)
def test_what_cannot_be_used_ends_the_start_with_the_reason_and_what_is_possible(
    name: str, reason: str
) -> None:
    with pytest.raises(StartupError, match="the authorizer did not start") as refused:
        start_access(config(name), store(), steps())
    assert reason in str(refused.value)
    if "Un" not in name and "Failing" not in name:
        assert "kafka.security.authorizer.AclAuthorizer" in str(refused.value)
