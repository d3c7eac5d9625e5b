"""SCRAM credentials by request and by command: Kafka's rules, Kafka's znode, and no password anywhere."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.__main__ import main
from broker.protocol.errors import Errors, KafkaError
from broker.sasl.credential import ScramCredential
from broker.sasl.decoys import Form
from broker.sasl.scram import ALGORITHMS, new_credential, salted_password
from broker.server.apis import alter_user_scram_credentials as alter
from broker.server.apis import describe_user_scram_credentials as describe
from broker.server.scram_credentials import ScramCredentials
from broker.zookeeper import znodes
from broker.zookeeper.access import secure_acls
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore

SALT = b"0123456789abcdef"


@pytest.fixture
def ctx() -> Any:
    store = ClusterStore(EmbeddedStore(None))
    store.create_top_level_paths()
    return SimpleNamespace(store=store, controller=SimpleNamespace(is_active=True), broker_id=1)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would configure the logging of all tests."""
    monkeypatch.setattr("broker.__main__._logging", lambda: None)
    monkeypatch.setenv("LANDLINE_LOG_LEVEL", "error")


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, password: str = "secret") -> Any:
    known = {algorithm.number: each for each, algorithm in ALGORITHMS.items()}
    salted = salted_password(known.get(mechanism, "SCRAM-SHA-256"), password, SALT, max(iterations, 1))
    return SimpleNamespace(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def deletion(name: str, mechanism: int = 1) -> Any:
    return SimpleNamespace(name=name, mechanism=mechanism)


def altered(ctx: Any, *changes: Any) -> dict[str, int]:
    message = SimpleNamespace(
        upsertions=[change for change in changes if hasattr(change, "salt")],
        deletions=[change for change in changes if not hasattr(change, "salt")],
    )
    results = alter.handle(None, message, ctx)["results"]  # type: ignore[arg-type]
    return {row["user"]: int(row["error_code"]) for row in results}


def described(ctx: Any, *users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    message = SimpleNamespace(users=[SimpleNamespace(name=user) for user in users])
    return [
        (
            row["user"],
            int(row["error_code"]),
            [(info["mechanism"], info["iterations"]) for info in row["credential_infos"]],
        )
        for row in describe.handle(None, message, ctx)["results"]  # type: ignore[arg-type]
    ]


def test_a_credential_is_written_as_kafka_writes_it_and_announced(ctx: Any) -> None:
    assert altered(ctx, upsertion("alice")) == {"alice": 0}
    text = ctx.store.entity_config("users", "alice")["SCRAM-SHA-256"]
    assert ScramCredential.parse(text) == new_credential("SCRAM-SHA-256", "secret", 4096, SALT)
    assert [field.partition("=")[0] for field in text.split(",")] == [
        "salt",
        "stored_key",
        "server_key",
        "iterations",
    ]
    assert [path for _, path in ctx.store.config_changes()] == ["users/alice"]


def test_a_users_quotas_stay_as_they_are(ctx: Any) -> None:
    ctx.store.set_entity_config("users", "a/b", {"producer_byte_rate": "1"})
    assert altered(ctx, upsertion("a/b"), upsertion("a/b", 2)) == {"a/b": 0}
    assert altered(ctx, deletion("a/b"), upsertion("a/b", 2, 8192)) == {"a/b": 0}
    configs = ctx.store.entity_config("users", "a/b")
    assert set(configs) == {"producer_byte_rate", "SCRAM-SHA-512"}
    assert described(ctx, "a/b") == [("a/b", 0, [(2, 8192)])]


def test_each_user_has_a_result_and_a_refused_one_is_not_changed(ctx: Any) -> None:
    results = altered(
        ctx,
        upsertion("good"),
        upsertion(""),
        upsertion("unknown", 3),
        upsertion("few", iterations=4095),
        upsertion("many", iterations=16385),
        upsertion("twice"),
        deletion("twice"),
        deletion("absent"),
        upsertion("absent", 2),
    )
    assert results == {
        "good": Errors.NONE,
        "": Errors.UNACCEPTABLE_CREDENTIAL,
        "unknown": Errors.UNSUPPORTED_SASL_MECHANISM,
        "few": Errors.UNACCEPTABLE_CREDENTIAL,
        "many": Errors.UNACCEPTABLE_CREDENTIAL,
        "twice": Errors.DUPLICATE_RESOURCE,
        "absent": Errors.RESOURCE_NOT_FOUND,
    }
    assert [user for user, _, _ in described(ctx)] == ["good"]


@pytest.mark.parametrize(
    "wrong", [{"salt": b""}, {"salt": bytes(1025)}, {"salted_password": b""}, {"salted_password": bytes(64)}]
)
def test_a_salt_or_salted_password_of_another_size_is_refused(ctx: Any, wrong: dict[str, bytes]) -> None:
    change = upsertion("alice")
    vars(change).update(wrong)
    assert altered(ctx, change) == {"alice": Errors.UNACCEPTABLE_CREDENTIAL}
    assert described(ctx) == []


def test_only_the_controller_alters(ctx: Any) -> None:
    ctx.controller.is_active = False
    assert altered(ctx, upsertion("alice"), deletion("bob")) == {
        "alice": Errors.NOT_CONTROLLER,
        "bob": Errors.NOT_CONTROLLER,
    }
    assert described(ctx) == []


def test_users_are_described_in_their_order_or_as_they_were_asked_for(ctx: Any) -> None:
    altered(ctx, upsertion("zoe"), upsertion("alice", 2), upsertion("alice"))
    ctx.store.set_entity_config("users", "quota-only", {"producer_byte_rate": "1"})
    ctx.store.set_entity_config("users", "broken", {"SCRAM-SHA-256": "salt"})
    assert described(ctx) == [
        ("alice", 0, [(1, 4096), (2, 4096)]),
        ("broken", -1, []),
        ("zoe", 0, [(1, 4096)]),
    ]
    assert described(ctx, "zoe", "quota-only", "", "twice", "twice") == [
        ("zoe", 0, [(1, 4096)]),
        ("quota-only", Errors.RESOURCE_NOT_FOUND, []),
        ("", Errors.RESOURCE_NOT_FOUND, []),
        ("twice", Errors.DUPLICATE_RESOURCE, []),
    ]


def test_a_failure_is_told_for_every_user() -> None:
    message = SimpleNamespace(upsertions=[upsertion("a")], deletions=[deletion("a"), deletion("b")])
    answer = alter.error_response(message, KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED, "no"))
    assert [row["user"] for row in answer["results"]] == ["a", "b"]


def test_credentials_follow_the_znodes() -> None:
    known = ScramCredentials()
    text = str(new_credential("SCRAM-SHA-256", "x", 4096, SALT))
    known.load({"alice": {"SCRAM-SHA-256": text}, "bob": {"SCRAM-SHA-256": "broken"}})
    assert known.find("SCRAM-SHA-256", "alice") is not None
    assert known.find("SCRAM-SHA-512", "alice") is None
    assert known.find("SCRAM-SHA-256", "bob") is None
    known.on_entity_config(f"users/{znodes.sanitize('b ö/b')}", {"SCRAM-SHA-512": text})
    assert known.find("SCRAM-SHA-512", "b ö/b") is not None
    known.on_entity_config("users/alice/clients/c", {})
    known.on_entity_config("clients/alice", {})
    assert known.find("SCRAM-SHA-256", "alice") is not None
    known.on_entity_config("users/alice", {})
    assert known.find("SCRAM-SHA-256", "alice") is None


@pytest.mark.usefixtures("quiet")
def test_the_command_sets_lists_and_deletes_before_the_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    monkeypatch.setattr("sys.stdin", io.StringIO("from the input\n"))
    assert main(["credentials", "set", *where, "--user", "alice"]) == 0
    (tmp_path / "password").write_text("from a file\n")
    given = ["--password-file", str(tmp_path / "password"), "--iterations", "8192"]
    assert main(["credentials", "set", *where, "--user", "bob", "--mechanism", "SCRAM-SHA-512", *given]) == 0
    capsys.readouterr()
    assert main(["credentials", "list", *where]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "alice: SCRAM-SHA-256, 4096 iterations",
        "alice: SCRAM-SHA-512, 4096 iterations",
        "bob: SCRAM-SHA-512, 8192 iterations",
    ]
    assert main(["credentials", "delete", *where, "--user", "alice", "--mechanism", "SCRAM-SHA-256"]) == 0
    assert main(["credentials", "delete", *where, "--user", "alice", "--mechanism", "SCRAM-SHA-256"]) == 1
    assert "user alice has no SCRAM-SHA-256" in capsys.readouterr().err
    assert b"from" not in (tmp_path / "data" / "metadata.sqlite").read_bytes()


@pytest.mark.usefixtures("quiet")
def test_the_command_refuses_an_empty_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["credentials", "set", "--data-dir", str(tmp_path), "--user", "alice"]) == 1
    assert "the password is empty" in capsys.readouterr().err


@pytest.mark.usefixtures("quiet")
def test_the_command_says_that_a_file_names_no_zookeeper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server.properties").write_text("broker.id=1\n")
    assert main(["credentials", "list", str(tmp_path / "server.properties")]) == 1
    assert "has no zookeeper.connect" in capsys.readouterr().err


def test_all_brokers_have_one_secret_that_only_they_read(ctx: Any) -> None:
    secret = ctx.store.get_or_create_scram_secret()
    assert len(secret) == 64
    assert ClusterStore(ctx.store.store).get_or_create_scram_secret() == secret
    assert [acl.scheme for acl in secure_acls(znodes.SCRAM_SECRET)] == ["auth"]
    assert ctx.store.entity_configs("users") == {}


def test_the_forms_of_credentials_follow_the_users() -> None:
    credentials = ScramCredentials()
    assert credentials.forms("SCRAM-SHA-256") == ()
    for user, iterations in (("alice", 4096), ("bob", 8192), ("carol", 8192)):
        text = str(new_credential("SCRAM-SHA-256", "secret", iterations, SALT))
        credentials.on_entity_config(f"users/{user}", {"SCRAM-SHA-256": text})
    forms = Form(8192, len(SALT), is_text=True), Form(4096, len(SALT), is_text=True)
    assert credentials.forms("SCRAM-SHA-256") == forms
    assert credentials.forms("SCRAM-SHA-512") == ()
    credentials.on_entity_config("users/alice", {})
    assert credentials.forms("SCRAM-SHA-256") == forms[:1]
