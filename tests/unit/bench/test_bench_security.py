"""The benchmark's measure of what security costs: a real broker in this process, with and without it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from bench.guard import security
from bench.guard.security import AUTHORIZER, BOTH_QUOTAS, BYTE_QUOTA, CONTROL, PLAIN, TIME_QUOTA
from bench.guard.stage import Stage, StageError, staged_broker
from bench.suites.security import KEYS, SUITE


@pytest.fixture
def stage() -> Iterator[Stage]:
    with structlog.testing.capture_logs(), staged_broker() as started:
        yield started


def test_the_kinds_differ_in_their_security_alone_and_are_all_served(stage: Stage) -> None:
    with security.secured_workloads(stage) as workloads:
        served = {}
        for workload in workloads:
            workload.begin_slice()
            assert workload.request() > 0
            workload.check()
            ctx = stage.server._ctx
            assert ctx.quotas is stage.server._apis._quotas
            served[workload.name] = (
                ctx.access is not None,
                bool(ctx.quotas.produce.rates(ctx.quotas.now_ms)),
                bool(ctx.quotas.request.rates(ctx.quotas.now_ms)),
            )
    assert served == {
        PLAIN: (False, False, False),
        AUTHORIZER: (True, False, False),
        BYTE_QUOTA: (False, True, False),
        TIME_QUOTA: (False, False, True),
        BOTH_QUOTAS: (False, True, True),
        CONTROL: (False, False, False),
    }


def test_without_its_acl_the_client_would_be_refused(stage: Stage, monkeypatch) -> None:
    monkeypatch.setattr(security, "_PRINCIPAL", "User:mallory")
    monkeypatch.setattr(security, "_acls", lambda: iter(()))
    with security.secured_workloads(stage) as workloads:
        with_authorizer = next(each for each in workloads if each.name == AUTHORIZER)
        with_authorizer.begin_slice()
        with_authorizer.request()
        with pytest.raises(StageError, match="PRODUCE"):
            with_authorizer.check()


def test_afterwards_the_broker_is_as_before(stage: Stage) -> None:
    before = stage.server._ctx.quotas
    with security.secured_workloads(stage) as workloads:
        workloads[1].begin_slice()
    assert stage.server._ctx.access is None
    assert stage.server._ctx.quotas is before


def test_costs_are_told_as_shares_of_the_plain_request() -> None:
    shares = security.shares_of({PLAIN: 40.0, AUTHORIZER: 41.0, CONTROL: 39.0})
    assert shares == {PLAIN: 40.0, AUTHORIZER: pytest.approx(0.025), CONTROL: pytest.approx(-0.025)}


def test_the_suite_has_a_figure_for_each() -> None:
    (workload,) = SUITE.workloads
    assert {metric.key for metric in workload.metrics} == {
        f"security.{key}" for key in (*KEYS.values(), "plain")
    }
