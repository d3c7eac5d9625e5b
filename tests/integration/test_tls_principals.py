"""The subject of a client's certificate is the principal that ACLs are about."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until
from tests.integration.test_tls import Site

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_an_acl_lets_in_whom_a_rule_made_of_a_certificate(tmp_path: Path) -> None:
    site = Site.at(tmp_path)
    config = site.config(
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/",
        authorizer_class_name="kafka.security.authorizer.AclAuthorizer",
        super_users="User:alice;User:ANONYMOUS",
    )
    with LandlineStandalone(tmp_path / "data", config, port=site.plain_port) as running:
        admin = AdminClient(site.confluent("alice"))
        for future in admin.create_topics([NewTopic("kept", 1, 1)]).values():
            future.result(20)
        assert "TOPIC_AUTHORIZATION_FAILED" in produced(site)
        wait_until(lambda: "denied log=audit principal=User:mallory" in running.log_text(), 20)
        binding = AclBinding(
            ResourceType.TOPIC,
            "kept",
            ResourcePatternType.LITERAL,
            "User:mallory",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        for future in admin.create_acls([binding]).values():
            future.result(20)
        wait_until(lambda: produced(site) == "None", 30)


def produced(site: Site) -> str:
    told: list[str] = []
    producer = Producer(site.confluent("mallory", **{"message.timeout.ms": 5_000}))
    producer.produce("kept", b"x", on_delivery=lambda error, _: told.append(str(error and error.name())))
    producer.flush(20)
    return told[0]
