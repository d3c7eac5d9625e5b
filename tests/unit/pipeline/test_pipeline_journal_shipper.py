"""The journal shipper's own rules: its configuration, its lines, its cursor. It runs in the integration test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.journal_shipper import SHIPPER, load_shipper

shipper = load_shipper()
CURSOR = "s=d9d8f42b5ac5420e90650b58fedc811c;i=1;b=333355a5;m=746bd796;t=660c678fbe906;x=5ef7f9aafd30d884"


def config(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "shipper.properties"
    path.write_text("\n".join(["bootstrap.servers=b1:9092,b2:9092", *lines]) + "\n")
    return path


def test_configuration_is_read_by_kafkas_kind_of_names(tmp_path: Path) -> None:
    read = shipper.Config.read(config(tmp_path, "# note", "", "max.unacked.records = 5", "topic=a.b"))
    assert (read.bootstrap_servers, read.topic, read.max_unacked_records) == ("b1:9092,b2:9092", "a.b", 5)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("tpoic=x", ":2: unknown key 'tpoic'"),
        ("just words", ":2: unknown key 'just words'"),
        ("max.unacked.records=many", ":2: max.unacked.records must be a whole number above 0, not 'many'"),
        ("max.unacked.records=0", ":2: max.unacked.records must be a whole number above 0, not '0'"),
        ("start.from=noon", "start.from must be one of boot, oldest, now"),
        ("compression.type=zip", "compression.type must be one of gzip, none"),
        ("bootstrap.servers=", "bootstrap.servers is missing"),
    ],
)
def test_bad_configuration_is_refused_by_file_line_and_key(tmp_path: Path, line: str, complaint: str) -> None:
    path = config(tmp_path, line)
    with pytest.raises(shipper.ConfigError) as refused:
        shipper.Config.read(path)
    assert str(refused.value).startswith(str(path))
    assert complaint in str(refused.value)


def test_role_renders_every_key_that_the_program_knows() -> None:
    rendered = (SHIPPER.parents[1] / "vars" / "main.yml").read_text()
    for name in ("bootstrap.servers", "topic", "start.from", "max.unacked.records", "own.unit"):
        assert f"  {name}: " in rendered


@pytest.mark.parametrize("chunk", [1, 2, 7, 100])
def test_lines_come_whole_however_the_bytes_are_cut(chunk: int) -> None:
    text = b"one\ntwo\n\nthree\nhalf"
    buffer = shipper.LineBuffer(100)
    lines = [line for at in range(0, len(text), chunk) for line in buffer.feed(text[at : at + chunk])]
    assert lines == [b"one", b"two", b"", b"three"]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_line_over_the_limit_is_dropped_whole_and_counted(chunk: int) -> None:
    text = b"a\n" + b"x" * 50 + b"\nb\n" + b"y" * 11 + b"\nc\n"
    buffer = shipper.LineBuffer(10)
    lines = [line for at in range(0, len(text), chunk) for line in buffer.feed(text[at : at + chunk])]
    assert lines == [b"a", b"b", b"c"]
    assert buffer.dropped == 2


def test_endless_line_takes_no_memory() -> None:
    buffer = shipper.LineBuffer(1000)
    for _ in range(10_000):
        assert list(buffer.feed(b"x" * 1000)) == []
    assert len(buffer._rest) <= 1000


def test_own_log_lines_are_not_shipped_but_move_the_cursor() -> None:
    own = {"__CURSOR": CURSOR, "_SYSTEMD_UNIT": "me.service"}
    assert shipper.read_entry(json.dumps(own).encode(), "me.service") == shipper.Entry(
        json.dumps(own).encode(), CURSOR, ship=False
    )
    others = json.dumps(own | {"_SYSTEMD_UNIT": "ssh.service"}).encode()
    assert shipper.read_entry(others, "me.service").ship


@pytest.mark.parametrize("line", [b"", b"-- Boot --", b"{}", b"[]", b'{"__CURSOR": 5}', b"\xff", b"null"])
def test_line_that_is_no_entry_is_told_apart(line: bytes) -> None:
    assert shipper.read_entry(line, "me.service") is None


def test_cursor_survives_and_a_damaged_one_is_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cursors = shipper.CursorFile(tmp_path)
    assert cursors.load() is None
    cursors.save(CURSOR)
    assert shipper.CursorFile(tmp_path).load() == CURSOR
    (tmp_path / "cursor").write_text(CURSOR[:40])
    assert shipper.CursorFile(tmp_path).load() is None
    assert "cursor_damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["security.protocol=SASL_PLAINTEXT"], "security.protocol must be PLAINTEXT, SSL or SASL_SSL"),
        (["security.protocol=SSL"], "ssl.truststore.certificates is missing"),
        (
            [
                "security.protocol=SASL_SSL",
                "ssl.truststore.certificates=x",
                'sasl.jaas.config=M required secret="s";',
            ],
            "sasl.jaas.config has no username and password",
        ),
    ],
)
def test_settings_of_a_client_are_refused_without_a_value_that_may_be_secret(
    tmp_path: Path, lines: list[str], complaint: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(shipper.ConfigError, match=complaint) as refused:
        shipper.Login.read(path)
    assert '"s"' not in str(refused.value)


def test_a_plaintext_client_has_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# head\nbootstrap.servers=a:9092\nsecurity.protocol=PLAINTEXT\n")
    assert shipper.Login.read(path).settings() == {}
