"""Dials brokers' addresses as a client does: name, TCP, TLS, login, Metadata, and which broker it is. `answers`
judges the result.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.replication.broker_channel import BrokerChannel, ChannelError, ChannelSecurity
from broker.sasl.client import ClientLogin
from broker.sasl.exchange import LoginFailed
from broker.server.doctor.answers import Answer, Dialled, Recognised
from broker.server.doctor.in_parallel import run_all

_METADATA_VERSION: Final = 4
_DESCRIBE_CONFIGS_VERSION: Final = 1
_BROKER: Final = 4
# What is asked of each broker beside its identity.
SETTINGS: Final = ("inter.broker.protocol.version",)

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Dialler:
    """How addresses are dialled: each step has ``step_ms``. ``security`` is None for a listener without TLS,
    ``login`` for one without SASL.
    """

    step_ms: int
    security: ChannelSecurity | None = None
    login: ClientLogin | None = None

    def __call__(self, address: Address, broker_id: int | None = None) -> Answer:
        """Dials one address. With ``broker_id`` it also asks whether that broker answers."""
        began_s = time.monotonic()
        refused = reach(address, self.step_ms)
        if refused is not None:
            return refused
        answer = self._ask(Answer(*address, Dialled.ANSWERED), broker_id)
        return replace(answer, took_ms=int((time.monotonic() - began_s) * 1000))

    def _ask(self, empty: Answer, broker_id: int | None) -> Answer:
        channel = BrokerChannel(
            empty.host,
            empty.port,
            client_id="landline-doctor",
            connect_timeout_ms=self.step_ms,
            request_timeout_ms=self.step_ms,
            security=self.security,
            login=self.login,
        )
        try:
            channel.connect()
            answer = _metadata(channel, empty)
            return answer if broker_id is None else _identified(channel, answer, broker_id)
        except (ChannelError, ProtocolError) as error:
            return self._why(empty, error)
        finally:
            channel.close()

    def _why(self, empty: Answer, error: Exception) -> Answer:
        cause = error.__cause__
        if isinstance(cause, LoginFailed):
            return replace(empty, dialled=Dialled.NO_LOGIN, detail=str(cause))
        if isinstance(error, ProtocolError) or isinstance(cause, ProtocolError):
            return replace(empty, dialled=Dialled.NONSENSE)
        if isinstance(cause, TimeoutError):
            return replace(empty, dialled=Dialled.SILENT)
        if self.security is not None:
            found = _why_tls(empty, cause, self.step_ms)
            if found is not None:
                return found
        if "announced an answer" in str(error):
            return replace(empty, dialled=Dialled.NONSENSE)
        return replace(empty, dialled=Dialled.HUNG_UP)


def _why_tls(empty: Answer, cause: BaseException | None, step_ms: int) -> Answer | None:
    from broker.tls import client

    if client.is_wrong_name(cause):
        names = client.names_presented(empty.host, empty.port, step_ms / 1000)
        return replace(empty, dialled=Dialled.WRONG_NAME, detail=f"it is for {names or 'no name'}")
    if client.is_untrusted(cause):
        return replace(
            empty, dialled=Dialled.UNTRUSTED, detail=str(getattr(cause, "verify_message", "") or cause)
        )
    if client.is_tls(cause):
        return replace(empty, dialled=Dialled.NO_TLS, detail=str(getattr(cause, "reason", "") or cause))
    return None


def reach(address: Address, step_ms: int) -> Answer | None:
    """Why nobody accepts connections at the address; None if somebody does."""
    host, port = address
    try:
        socket.create_connection(address, step_ms / 1000).close()
    except (socket.gaierror, UnicodeError) as error:
        return Answer(host, port, Dialled.NO_NAME, str(getattr(error, "strerror", "") or error))
    except ConnectionRefusedError:
        return Answer(host, port, Dialled.REFUSED)
    except TimeoutError:
        return Answer(host, port, Dialled.TIMED_OUT, f"{step_ms} ms")
    except (OSError, OverflowError) as error:
        return Answer(host, port, Dialled.UNREACHABLE, str(getattr(error, "strerror", "") or error))
    return None


def _metadata(channel: BrokerChannel, empty: Answer) -> Answer:
    fields = {"topics": [], "allow_auto_topic_creation": False}
    response = channel.request(ApiKey.METADATA, _METADATA_VERSION, fields)
    return replace(
        empty,
        cluster_id=response.cluster_id or None,
        controller_id=int(response.controller_id),
        brokers={int(each.node_id): (str(each.host), int(each.port)) for each in response.brokers},
    )


def _identified(channel: BrokerChannel, answer: Answer, broker_id: int) -> Answer:
    """The answer with the broker's identity: only a broker itself describes its configs."""
    resource = {
        "resource_type": _BROKER,
        "resource_name": str(broker_id),
        "configuration_keys": list(SETTINGS),
    }
    try:
        response = channel.request(
            ApiKey.DESCRIBE_CONFIGS,
            _DESCRIBE_CONFIGS_VERSION,
            {"resources": [resource], "include_synonyms": False},
        )
        result = response.results[0]
    except (ChannelError, ProtocolError, IndexError) as error:
        return replace(answer, said=str(error))
    return replace(answer, **_identity(result))


def _identity(result: Any) -> Mapping[str, Any]:
    code, said = int(result.error_code), str(result.error_message or "")
    if code == Errors.NONE:
        settings = {str(each.name): str(each.value) for each in result.configs if each.value is not None}
        return {"identity": Recognised.SAME, "settings": settings}
    if code == Errors.INVALID_REQUEST:
        return {"identity": Recognised.OTHER, "said": said}
    if code == Errors.CLUSTER_AUTHORIZATION_FAILED:
        return {"identity": Recognised.NOT_ALLOWED}
    name = Errors(code).name if code in set(Errors) else str(code)
    return {"identity": Recognised.UNKNOWN, "said": f"{name} {said}".strip()}


def dial_all(
    dial: Callable[[Address, int | None], Answer],
    addresses: Mapping[tuple[Address, int | None], object],
    deadline_s: float,
) -> dict[tuple[Address, int | None], Answer]:
    """Dials all addresses at once, each with the broker id that is expected there. One without a result at
    ``deadline_s`` is LATE.
    """
    results = run_all({key: _call(dial, key) for key in addresses}, deadline_s)
    return {
        key: result if isinstance(result, Answer) else _late(key, result) for key, result in results.items()
    }


def _call(
    dial: Callable[[Address, int | None], Answer], key: tuple[Address, int | None]
) -> Callable[[], Answer]:
    return lambda: dial(*key)


def _late(key: tuple[Address, int | None], result: BaseException | None) -> Answer:
    (host, port), _ = key
    return Answer(host, port, Dialled.LATE, "" if result is None else repr(result))
