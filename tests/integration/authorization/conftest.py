"""The broker with an authorizer that a file's tests share, and those who ask it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rig.brokers import HOST
from rig.raw_client import RawClient
from tests.support.guarded_broker import GUEST_HOST, GuardedBroker, guarded_broker, logged_in
from tests.support.served_world import make_world
from tests.support.valid_requests import World


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with guarded_broker(tmp_path_factory.mktemp("guarded") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: GuardedBroker) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as client:
        yield client


@pytest.fixture
def guest(broker: GuardedBroker) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port, from_host=GUEST_HOST) as client:
        yield client


@pytest.fixture
def member(broker: GuardedBroker) -> Iterator[RawClient]:
    with logged_in(broker, "member") as client:
        yield client


@pytest.fixture(scope="module")
def world(broker: GuardedBroker, admin: RawClient) -> World:
    return make_world(broker, admin)
