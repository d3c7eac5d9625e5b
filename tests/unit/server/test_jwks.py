"""The keys of OAUTHBEARER are read at the start, again from time to time, and sooner for a key that is new."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.sasl.oauthbearer import TokenRefused
from broker.server.jwks import JwksKeeper, fetch
from broker.utils.scheduler import KafkaScheduler
from tests.support.clocks import ManualClock


class Scheduled:
    """A scheduler whose tasks a test runs."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, Callable[[], None]]] = []

    def schedule(self, _name: str, action: Callable[[], None], delay_ms: int = 0) -> None:
        self.tasks.append((delay_ms, action))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def keys(*ids: str) -> bytes:
    point = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    return json.dumps({"keys": [{**point, "kid": each} for each in ids]}).encode()


class Provider:
    """What is answered for the URL; None: nothing."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.asked = 0

    def __call__(self, _url: str) -> bytes:
        self.asked += 1
        if self.content is None:
            raise OSError("no answer")
        return self.content


def keeper(provider: Provider, clock: ManualClock) -> tuple[JwksKeeper, Scheduled]:
    pytest.importorskip("joserfc")
    one = JwksKeeper(
        "https://user:secret@idp/keys?token=secret",
        refresh_ms=3_600_000,
        backoff_ms=100,
        max_backoff_ms=300,
        load=provider,
        clock=clock,
    )
    scheduler = Scheduled()
    one.startup(scheduler)  # type: ignore[arg-type]
    return one, scheduler


def test_keys_are_read_at_the_start_and_replaced_later(clock: ManualClock) -> None:
    provider = Provider(keys("a"))
    one, scheduler = keeper(provider, clock)
    assert one.keys.find("a").kid == "a"
    provider.content = keys("b")
    delay_ms, refresh = scheduler.tasks.pop()
    assert delay_ms == 3_600_000
    clock.now_ms += delay_ms
    refresh()
    assert one.keys.find("b").kid == "b"
    with pytest.raises(TokenRefused):
        one.keys.find("a")


def test_a_failed_read_is_repeated_with_longer_pauses_and_keeps_the_keys(clock: ManualClock) -> None:
    provider = Provider(keys("a"))
    one, scheduler = keeper(provider, clock)
    provider.content = None
    delays = []
    for _ in range(5):
        delay_ms, refresh = scheduler.tasks.pop()
        delays.append(delay_ms)
        clock.now_ms += delay_ms
        refresh()
    assert delays == [3_600_000, 100, 200, 300, 300]
    assert one.keys.find("a").kid == "a"


def test_a_provider_that_is_down_does_not_keep_the_broker_from_starting(clock: ManualClock) -> None:
    one, scheduler = keeper(Provider(None), clock)
    with pytest.raises(TokenRefused):
        one.keys.find("a")
    assert len(scheduler.tasks) == 1


def test_a_token_of_a_new_key_makes_the_next_read_come_sooner_but_not_often(clock: ManualClock) -> None:
    provider = Provider(keys("a"))
    one, scheduler = keeper(provider, clock)
    for _ in range(3):
        with pytest.raises(TokenRefused):
            one.keys.find("b")
    assert len(scheduler.tasks) == 1
    clock.now_ms += 10_000
    provider.content = keys("a", "b")
    for _ in range(3):
        with pytest.raises(TokenRefused):
            one.keys.find("b")
    assert [delay_ms for delay_ms, _ in scheduler.tasks] == [3_600_000, 0]
    scheduler.tasks.pop()[1]()
    assert one.keys.find("b").kid == "b"
    scheduler.tasks.pop(0)[1]()
    assert provider.asked == 2


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "the keys.json").write_bytes(b"content")
    assert fetch(f"file://{tmp_path}/the%20keys.json") == b"content"
    with pytest.raises(FileNotFoundError):
        fetch(f"file://{tmp_path}/other")
    with pytest.raises(ValueError, match="is no scheme"):
        fetch("ftp://idp/keys")


def test_it_runs_on_the_real_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("joserfc")
    (tmp_path / "keys").write_bytes(keys("a"))
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    one = JwksKeeper(f"file://{tmp_path}/keys", refresh_ms=60_000, backoff_ms=1, max_backoff_ms=1)
    one.startup(scheduler)
    assert one.keys.find("a").kid == "a"
    scheduler.shutdown()
