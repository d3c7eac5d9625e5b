"""The interface of an authorizer: what decides who may do what. Public: ``authorizer.class.name`` may name
a class of your own. docs/security.md has an example.

The broker calls :meth:`Authorizer.authorize` on its network thread, for each topic and group of a request.
So it must answer from memory and at once. An exception denies, and is logged. All methods may be called by
several threads at the same time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.protocol.errors import Errors, KafkaError
from broker.security.acls import AclBinding, AclFilter, AclOperation, ResourceType


class Requester(Protocol):
    """Who asks; Kafka's AuthorizableRequestContext."""

    @property
    def principal(self) -> str:
        """``User:alice``; ``User:ANONYMOUS`` if nobody authenticated."""

    @property
    def client_address(self) -> str:
        """The address that the connection came from."""

    @property
    def listener_name(self) -> str:
        """The listener that it came by."""

    @property
    def security_protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""


class Deleted(NamedTuple):
    """An ACL that a filter selected, and the error if it could not be deleted."""

    binding: AclBinding
    error: KafkaError | None = None


class AuthorizerError(Exception):
    """The authorizer cannot be made or started; the message says why. The broker does not start."""


class Authorizer(ABC):
    """Decides who may do what; Kafka's Authorizer. The broker makes one instance, without arguments."""

    def start(self, settings: Mapping[str, str]) -> None:
        """Called once, before the first question. ``settings`` are the broker's keys that begin with
        ``authorizer.``, and ``super.users`` and ``allow.everyone.if.no.acl.found`` where they are set.
        Raise :class:`AuthorizerError` to end the start with its message.
        """

    @abstractmethod
    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the requester may do this. The cluster's name is ``kafka-cluster``."""

    def authorize_any(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether the requester may do this with at least one resource of the type, whether or not it exists.
        An idempotent producer asks for WRITE on any topic, if it has no IDEMPOTENT_WRITE on the cluster.
        """
        return False

    def version(self) -> object:
        """What the answers depend on: as long as it is the same object, the answers are the same. None: they
        may change at any time. With it, Metadata of all topics is answered from a cache.
        """
        return None

    # -- the ACL requests; without these methods they are answered SECURITY_DISABLED

    def acls(self, wanted: AclFilter) -> Sequence[AclBinding]:
        """The ACLs that the filter selects."""
        raise no_acls(self)

    def create_acls(self, requester: Requester, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        """Adds ACLs; one result for each."""
        raise no_acls(self)

    def delete_acls(self, requester: Requester, filters: Sequence[AclFilter]) -> list[list[Deleted]]:
        """Deletes the ACLs that the filters select; one result for each filter. An ACL of several filters is
        in the first one's result.
        """
        raise no_acls(self)

    def close(self) -> None:
        """Called once, after the last question."""


def no_acls(authorizer: Authorizer) -> KafkaError:
    """The error of an authorizer without ACLs."""
    return KafkaError(Errors.SECURITY_DISABLED, f"{type(authorizer).__name__} has no ACLs of its own")
