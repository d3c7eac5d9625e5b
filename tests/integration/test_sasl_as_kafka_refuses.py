"""Authentications that fail, fail at Landline as at Apache Kafka 3.9.1: the same errors, the same closed connections.

Each test is a conversation, held with a broker of each kind. Compared are the error codes, and whether the
connection is open at the end. The words of the errors are Landline's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from rig.wait import last_for, wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.sasl_frames import plain
from tests.support.sasl_talk import Talk
from tests.support.secured import (
    ADMIN,
    GUEST,
    OWNER,
    PASSWORDS,
    SHA_256,
    SHA_512,
    Pair,
    SecuredBroker,
    await_scram_login,
    secured_pair,
    set_scram_user,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
SESSION_MS = 8_000
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
    talk.handshake(SHA_256)
    talk.scram(GUEST, "wrong")


def unknown_scram_user(talk: Talk) -> None:
    talk.handshake(SHA_256)
    talk.scram("nobody", "wrong")


def right_scram_password(talk: Talk) -> None:
    talk.handshake(SHA_256)
    talk.scram(GUEST, PASSWORDS[GUEST])
    talk.request()


def malformed_scram_token(talk: Talk) -> None:
    talk.handshake(SHA_256)
    talk.authenticate(b"what is this")


def scram_user_of_another_mechanism(talk: Talk) -> None:
    talk.handshake(SHA_512)
    talk.scram(GUEST, PASSWORDS[GUEST], SHA_512)


def unknown_token(talk: Talk) -> None:
    talk.handshake(SHA_256)
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
    talk.handshake(SHA_256)
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


def equal(heard: tuple[list[str], list[str]]) -> bool:
    return heard[0] == heard[1]


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.__name__)
def test_it_ends_as_with_kafka(pair: Pair, conversation: Conversation) -> None:
    def hold(broker: SecuredBroker) -> list[str]:
        with broker.connect() as client:
            talk = Talk(client)
            conversation(talk)
            talk.end()
            return talk.heard

    if conversation is three_times_at_once:
        # On a slow machine the third time may come a second after the second time.
        wait_until(lambda: equal(pair.each(hold)), 60, 1.0, "both refuse what comes too soon")
        return
    kafka, landline = pair.each(hold)
    if conversation in ONLY_CLOSED:
        assert landline[-1] == kafka[-1] == "closed"
    else:
        assert landline == kafka
