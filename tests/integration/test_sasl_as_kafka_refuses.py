"""Authentications that fail, fail at Landline as at Apache Kafka 3.9.1: the same errors, the same closed connections.

Each test is a conversation, held with a broker of each kind. Compared are the error codes, and whether the
connection is open at the end. The words of the errors are Landline's own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import response_body_offset
from broker.sasl.exchange import LoginFailed
from broker.sasl.scram_client import ScramTokens
from rig.raw_client import RawClient, request_frame
from rig.wait import last_for
from rig.zookeeper import ZooKeeperServer
from tests.support.acl_matrix import outcome
from tests.support.sasl_frames import plain
from tests.support.secured import (
    ADMIN,
    GUEST,
    OWNER,
    PASSWORDS,
    Pair,
    SecuredBroker,
    await_scram_login,
    secured_pair,
    set_scram_user,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SCRAM, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SESSION_MS = 4_000
PAUSE_S = 1.2
"""A client that authenticates again within a second is not heard."""


@pytest.fixture(scope="module")
def pair(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    config = {"connections.max.reauth.ms": SESSION_MS}
    with secured_pair(zookeeper, tmp_path_factory.mktemp("sasl"), config) as made:
        for broker in made:
            set_scram_user(broker, GUEST)
            await_scram_login(broker, GUEST)
        yield made


class Talk:
    """A conversation with one broker, and what it answered."""

    def __init__(self, client: RawClient) -> None:
        self.heard: list[str] = []
        self._client = client

    def say(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Sends a request; the answer is noted and returned, None if the connection was closed."""
        return self.say_body(key, version, codec.encode(key, version, "request", fields))

    def say_body(self, key: ApiKey, version: int, body: bytes, answer_version: int | None = None) -> Any:
        self._client.send(request_frame(key, version, body))
        try:
            frame = memoryview(self._client.receive_frame())
        except ConnectionError:
            self.heard.append(f"{key.name}: closed")
            return None
        version = version if answer_version is None else answer_version
        answer = codec.decode(key, version, "response", frame[response_body_offset(key, version, frame) :])
        self.heard.append(f"{key.name}: {outcome(answer)}")
        return answer

    def send_bare(self, data: bytes) -> None:
        """Bytes of one frame without a header; notes the size of the answer."""
        self._client.send(struct.pack(">i", len(data)) + data)
        try:
            self.heard.append(f"bare: {len(self._client.receive_frame())} bytes")
        except ConnectionError:
            self.heard.append("bare: closed")

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        answer = self.say(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)
        if answer is not None:
            self.heard.append(f"offered: {sorted(answer.mechanisms)}")

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.say(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=token)

    def log_in(self, user: str = GUEST) -> None:
        self.handshake()
        self.authenticate(plain(user, PASSWORDS[user]))

    def scram(self, user: str, password: str, mechanism: str = SCRAM, *, by_token: bool = False) -> None:
        """The whole exchange. Only how it ends is kept: Landline refuses an unknown name with the proof, as it
        refuses a wrong password, so that nobody learns who exists. Kafka refuses it at once.
        """
        client, challenge = ScramTokens(mechanism, user, password, by_token=by_token), b""
        before = len(self.heard)
        with suppress(LoginFailed):
            while (token := client.next(challenge)) is not None:
                answer = self.authenticate(token)
                if answer is None or answer.error_code:
                    break
                challenge = answer.auth_bytes
        self.heard[before:] = self.heard[-1:]

    def request(self) -> None:
        """A request whose response has an error for the whole. Landline closes the connection at others."""
        self.say(ApiKey.LIST_GROUPS, 0)

    def end(self) -> None:
        """Notes whether the connection is open."""
        self.heard.append("open" if self._client.is_open() else "closed")


Conversation = Callable[[Talk], None]


def wrong_password(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(plain(GUEST, "wrong"))


def unknown_user(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(plain("nobody", "wrong"))


def empty_password(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(plain(GUEST, ""))


def empty_user(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(plain("", "wrong"))


def in_the_name_of_another(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(f"{ADMIN}\0{GUEST}\0{PASSWORDS[GUEST]}".encode())


def malformed_plain_token(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(b"no zeros in it")


def empty_plain_token(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(b"")


def wrong_scram_password(talk: Talk) -> None:
    talk.handshake(SCRAM)
    talk.scram(GUEST, "wrong")


def unknown_scram_user(talk: Talk) -> None:
    talk.handshake(SCRAM)
    talk.scram("nobody", "wrong")


def right_scram_password(talk: Talk) -> None:
    talk.handshake(SCRAM)
    talk.scram(GUEST, PASSWORDS[GUEST])
    talk.request()


def malformed_scram_token(talk: Talk) -> None:
    talk.handshake(SCRAM)
    talk.authenticate(b"what is this")


def scram_user_of_another_mechanism(talk: Talk) -> None:
    talk.handshake(SHA_512)
    talk.scram(GUEST, PASSWORDS[GUEST], SHA_512)


def unknown_token(talk: Talk) -> None:
    talk.handshake(SCRAM)
    talk.scram("some-id", "some-hmac", by_token=True)


def unknown_mechanism(talk: Talk) -> None:
    talk.handshake("CRAM-MD5")


def mechanism_that_is_not_enabled(talk: Talk) -> None:
    talk.handshake("GSSAPI")


def empty_mechanism(talk: Talk) -> None:
    talk.handshake("")


def mechanism_in_lower_case(talk: Talk) -> None:
    talk.handshake("plain")


def request_before_the_handshake(talk: Talk) -> None:
    talk.request()


def request_after_the_handshake(talk: Talk) -> None:
    talk.handshake()
    talk.request()


def token_before_the_handshake(talk: Talk) -> None:
    talk.authenticate(plain(GUEST, PASSWORDS[GUEST]))


def two_handshakes(talk: Talk) -> None:
    talk.handshake()
    talk.handshake()


def versions_before_the_handshake(talk: Talk) -> None:
    talk.say(ApiKey.API_VERSIONS, 0)
    talk.log_in()
    talk.request()


def versions_after_the_handshake(talk: Talk) -> None:
    talk.handshake()
    talk.say(ApiKey.API_VERSIONS, 0)


def unknown_version_of_api_versions(talk: Talk) -> None:
    talk.say_body(ApiKey.API_VERSIONS, 99, b"", answer_version=0)
    talk.log_in()


def handshake_of_a_version_that_is_not_there(talk: Talk) -> None:
    body = codec.encode(ApiKey.SASL_HANDSHAKE, 1, "request", {"mechanism": "PLAIN"})
    talk.say_body(ApiKey.SASL_HANDSHAKE, 2, body, answer_version=1)


def token_of_a_version_that_is_not_there(talk: Talk) -> None:
    talk.handshake()
    body = codec.encode(
        ApiKey.SASL_AUTHENTICATE, 2, "request", {"auth_bytes": plain(GUEST, PASSWORDS[GUEST])}
    )
    talk.say_body(ApiKey.SASL_AUTHENTICATE, 3, body, answer_version=2)


def bare_token_after_the_old_handshake(talk: Talk) -> None:
    talk.handshake(version=0)
    talk.send_bare(plain(GUEST, PASSWORDS[GUEST]))
    talk.request()


def wrong_bare_token(talk: Talk) -> None:
    talk.handshake(version=0)
    talk.send_bare(plain(GUEST, "wrong"))


def bare_token_after_the_new_handshake(talk: Talk) -> None:
    talk.handshake()
    talk.send_bare(plain(GUEST, PASSWORDS[GUEST]))


def token_with_a_header_after_the_old_handshake(talk: Talk) -> None:
    talk.handshake(version=0)
    talk.authenticate(plain(GUEST, PASSWORDS[GUEST]))


def garbage(talk: Talk) -> None:
    talk.send_bare(b"GET / HTTP/1.1\r\n\r\n")


def too_large_a_frame(talk: Talk) -> None:
    talk.handshake()
    talk.authenticate(bytes(600_000))


def a_token_after_the_login(talk: Talk) -> None:
    talk.log_in()
    talk.authenticate(plain(GUEST, PASSWORDS[GUEST]))


def again_at_once(talk: Talk) -> None:
    talk.log_in()
    talk.log_in()
    talk.request()


def three_times_at_once(talk: Talk) -> None:
    talk.log_in()
    talk.log_in()
    talk.log_in()
    talk.request()


def again_as_the_same(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    talk.log_in()
    talk.request()


def again_as_another(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    talk.log_in(OWNER)


def again_by_another_mechanism(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    talk.handshake(SCRAM)
    talk.scram(GUEST, PASSWORDS[GUEST])


def again_with_a_wrong_password(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    wrong_password(talk)


def again_by_an_unknown_mechanism(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    talk.handshake("CRAM-MD5")


def a_request_during_the_second_login(talk: Talk) -> None:
    talk.log_in()
    last_for(PAUSE_S)
    talk.handshake()
    talk.request()


def no_second_login(talk: Talk) -> None:
    talk.log_in()
    last_for(SESSION_MS / 1000 + 0.5)
    talk.request()


def too_late_a_second_login(talk: Talk) -> None:
    talk.log_in()
    last_for(SESSION_MS / 1000 + 0.5)
    talk.log_in()


ONLY_CLOSED = {again_by_another_mechanism, again_by_an_unknown_mechanism}
"""Kafka closes the connection. Landline first answers with the error."""
CONVERSATIONS: list[Conversation] = [
    wrong_password,
    unknown_user,
    empty_password,
    empty_user,
    in_the_name_of_another,
    malformed_plain_token,
    empty_plain_token,
    wrong_scram_password,
    unknown_scram_user,
    right_scram_password,
    malformed_scram_token,
    scram_user_of_another_mechanism,
    unknown_token,
    unknown_mechanism,
    mechanism_that_is_not_enabled,
    empty_mechanism,
    mechanism_in_lower_case,
    request_before_the_handshake,
    request_after_the_handshake,
    token_before_the_handshake,
    two_handshakes,
    versions_before_the_handshake,
    versions_after_the_handshake,
    unknown_version_of_api_versions,
    handshake_of_a_version_that_is_not_there,
    token_of_a_version_that_is_not_there,
    bare_token_after_the_old_handshake,
    wrong_bare_token,
    bare_token_after_the_new_handshake,
    token_with_a_header_after_the_old_handshake,
    garbage,
    too_large_a_frame,
    a_token_after_the_login,
    again_at_once,
    three_times_at_once,
    again_as_the_same,
    again_as_another,
    again_by_another_mechanism,
    again_with_a_wrong_password,
    again_by_an_unknown_mechanism,
    a_request_during_the_second_login,
    no_second_login,
    too_late_a_second_login,
]


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.__name__)
def test_it_ends_as_with_kafka(pair: Pair, conversation: Conversation) -> None:
    def hold(broker: SecuredBroker) -> list[str]:
        with broker.connect() as client:
            talk = Talk(client)
            conversation(talk)
            talk.end()
            return talk.heard

    kafka, landline = pair.each(hold)
    if conversation in ONLY_CLOSED:
        assert landline[-1] == kafka[-1] == "closed"
    else:
        assert landline == kafka
