"""What an authorizer and client quotas add to the cost of a produce of 16 KiB.

One broker serves the same request on one topic: without security, with the built-in authorizer, and with quotas
that are never used up. The kinds take turns in slices of about a millisecond, as in :mod:`.measure`, so that
noise strikes all of them alike, and only the kind differs. The plain one is there twice: its difference from
itself is what noise is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final

from bench.guard.measure import measure
from bench.guard.reference import Reference
from bench.guard.stage import Stage, data_parent, staged_broker
from bench.guard.workloads.produce import PRODUCE_VERSION, Produce
from bench.guard.workloads.workload import Workload
from broker.network.request_channel import ConnectionInfo
from broker.protocol.api_keys import ApiKey
from broker.quotas.entities import QuotaType
from broker.security.acl_authorizer import AclAuthorizer
from broker.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from broker.server.access import Access
from broker.server.audit import AuditLog
from broker.server.quotas import QuotaManagers
from broker.utils.logging_setup import configure_logging

PLAIN: Final = "plain"
CONTROL: Final = "plain again"
AUTHORIZER: Final = "authorizer"
BYTE_QUOTA: Final = "byte quota"
TIME_QUOTA: Final = "request quota"
BOTH_QUOTAS: Final = "both quotas"
_USER: Final = "alice"
_PRINCIPAL: Final = f"User:{_USER}"
_TOPIC: Final = "secured"
_ACLS: Final = 1_000
_PER_SLICE: Final = 16
# So high that nothing is throttled.
_BYTES: Final = {QuotaType.PRODUCE.value: str(1 << 50)}
_TIME: Final = {QuotaType.REQUEST.value: "1000000000"}


class _Secured(Workload):
    """The produce of ``base``, by a client of its own, with an authorizer, with quotas, or without."""

    api_key: ClassVar = ApiKey.PRODUCE
    version: ClassVar = PRODUCE_VERSION

    def __init__(
        self, base: Produce, name: str, access: Access | None = None, quotas: QuotaManagers | None = None
    ) -> None:
        self.stage = base.stage
        self.client = base.stage.connect(_PRINCIPAL)
        self.name = name
        self.moving_share, self.per_slice = base.moving_share, base.per_slice
        self._base = base
        self._access, self._quotas = access, quotas

    def begin_slice(self) -> None:
        self._base.begin_slice()
        self.stage.server.secure(self._access, self._quotas)

    def request(self) -> int:
        return self._base.request_by(self.client)


@contextmanager
def secured_workloads(stage: Stage) -> Iterator[Sequence[Workload]]:
    """The workloads, the plain one first."""
    base = Produce(stage, _TOPIC, 16 * 1024, acks=1, moving_share=0.4, per_slice=_PER_SLICE)
    authorizer = AclAuthorizer(stage.server.store.store)
    authorizer.start({})
    try:
        authorizer.create_acls(ConnectionInfo("", "", "", principal=_PRINCIPAL), list(_acls()))
        yield (
            _Secured(base, PLAIN),
            _Secured(base, AUTHORIZER, access=Access(authorizer, AuditLog())),
            _Secured(base, BYTE_QUOTA, quotas=_quotas(_BYTES)),
            _Secured(base, TIME_QUOTA, quotas=_quotas(_TIME)),
            _Secured(base, BOTH_QUOTAS, quotas=_quotas(_BYTES | _TIME)),
            _Secured(base, CONTROL),
        )
    finally:
        stage.server.secure(None, None)
        authorizer.close()


def _quotas(config: Mapping[str, str]) -> QuotaManagers:
    quotas = QuotaManagers()
    quotas.apply(f"users/{_USER}", config)
    return quotas


def _acls() -> Iterator[AclBinding]:
    """Many ACLs, one of which permits the produce."""
    entry = AccessControlEntry(_PRINCIPAL, "*", AclOperation.WRITE, Permission.ALLOW)
    for name in (_TOPIC, *(f"other-{number}" for number in range(_ACLS - 1))):
        yield AclBinding(ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL), entry)


def added_shares(budget_s: float, enough: int) -> Mapping[str, float]:
    """By what share of the plain request each of the others costs more, and the microseconds of the plain one.
    For a process of its own.
    """
    configure_logging({"LANDLINE_LOG_LEVEL": "warning"})
    with (
        staged_broker() as stage,
        secured_workloads(stage) as workloads,
        Reference(data_parent()) as reference,
    ):
        costs = measure(workloads, reference, budget_s=budget_s, enough=enough)
    return shares_of({name: cost.cpu_us for name, cost in costs.items()})


def shares_of(costs_us: Mapping[str, float]) -> Mapping[str, float]:
    """The costs as shares of the plain one, which remains as it is."""
    plain = costs_us[PLAIN]
    return {name: plain if name == PLAIN else cost / plain - 1 for name, cost in costs_us.items()}
