"""What `make release` makes of a checkout, and what it refuses."""

import hashlib
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from pipeline.jars import CONNECTOR
from tools import release
from tools.release import Archive, Release, Sources, bill_of_materials, project_version, sources

WHEELS = [
    ("kazoo-2.11.0-py2.py3-none-any.whl", "a" * 64),
    ("lz4-4.4.5-cp311-cp311-manylinux_2_17_x86_64.whl", "b" * 64),
]
DEPLOYING = Archive("landline-cluster-1.0.tar.gz", "d" * 64)
SHIPPER = "kafka_python-2.2.15-py2.py3-none-any.whl"
COMPILED = "landline-1.0-cp311-cp311-manylinux_2_36_x86_64.whl"


def git(checkout, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    subprocess.run(["git", "-C", str(checkout), *identity, *arguments], check=True)


@pytest.fixture
def checkout(tmp_path):
    """A repository with one committed file."""
    found = tmp_path / "checkout"
    found.mkdir()
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message=first"]):
        (found / "file").write_text("one")
        git(found, *command)
    return found


@pytest.fixture
def built(monkeypatch):
    """The releases' wheels, without the network: what they hold does not matter here."""

    def wheels(directory: Path, *, compiled: bool) -> list[Path]:
        made = [directory / "landline-1.0-py3-none-any.whl"]
        if compiled:
            made.append(directory / COMPILED)
        for path in made:
            path.write_bytes(path.name.encode())
        return made

    def download(directory: Path, requirements: str, platform: str) -> None:
        for name in [SHIPPER] if "kafka-python" in requirements else [name for name, _ in WHEELS]:
            (directory / name).write_bytes(platform.encode())

    monkeypatch.setattr(release, "build_wheels", wheels)
    monkeypatch.setattr(release, "download", download)
    monkeypatch.setattr(release.collection, "build", lambda *_: ("landline-cluster-1.0.tar.gz", b"roles"))


def test_what_is_not_committed_is_not_released(checkout):
    committed = sources(checkout, allow_dirty=False)
    assert dict(committed.files) == {"file": b"one"}
    (checkout / "file").write_text("two")
    with pytest.raises(SystemExit, match=r"these files are not:\n.*file"):
        sources(checkout, allow_dirty=False)
    changed = sources(checkout, allow_dirty=True)
    assert changed.commit == f"{committed.commit}-dirty"
    assert changed.digest != committed.digest


def test_an_inventory_beside_the_sample_is_the_operators_and_keeps_no_release_back(checkout):
    (checkout / "inventory/sample").mkdir(parents=True)
    (checkout / "inventory/sample/hosts.yml").write_text("sample")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=sample")
    committed = sources(checkout, allow_dirty=False)
    (checkout / "inventory/mine").mkdir()
    (checkout / "inventory/mine/hosts.yml").write_text("mine")
    assert sources(checkout, allow_dirty=False) == committed
    (checkout / "inventory/sample/hosts.yml").write_text("mine")
    with pytest.raises(SystemExit, match=r"these files are not:\n.*inventory/sample"):
        sources(checkout, allow_dirty=False)


def test_a_version_has_one_content(built, tmp_path):
    made = Release("1.0", tmp_path)
    made.make(
        Sources("c0ffee", {"file": b"one"}), "kazoo==2.11.0\n", "kafka-python==2.2.15\n", ["cp311-x86_64"]
    )
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit, match=r"1\.0 was made from c0ffee, which has other files"):
        made.make(
            Sources("decaf", {"file": b"two"}), "kazoo==2.11.0\n", "kafka-python==2.2.15\n", ["cp311-x86_64"]
        )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    made.make(
        Sources("c0ffee", {"file": b"one"}),
        "kazoo==2.11.0\n",
        "kafka-python==2.2.15\n",
        ["cp311-x86_64", "cp311-aarch64"],
    )
    assert (tmp_path / "landline-1.0-cp311-x86_64.tar").read_bytes() == before[
        "landline-1.0-cp311-x86_64.tar"
    ]
    assert sorted(made.made()["archives"]) == ["cp311-aarch64", "cp311-x86_64"]


def test_compiled_code_is_in_the_archive_of_hosts_that_it_fits_and_the_pure_wheel_in_all(built, tmp_path):
    hosts = ["cp311-x86_64", "cp311-aarch64", "cp312-x86_64"]
    Release("1.0", tmp_path, compiled=True).make(
        Sources("c0ffee", {"file": b"one"}), "", "kafka-python==2.2.15\n", hosts
    )
    pins = {}
    for host in hosts:
        with tarfile.open(tmp_path / f"landline-1.0-{host}.tar") as archive:
            requirements = archive.extractfile("requirements.txt")
            assert requirements is not None
            pins[host] = requirements.read().decode().count("--hash=")
            assert (COMPILED in archive.getnames()) is (host == "cp311-x86_64")
            assert "landline-1.0-py3-none-any.whl" in archive.getnames()
    assert pins == {"cp311-x86_64": 2, "cp311-aarch64": 1, "cp312-x86_64": 1}


def test_the_journal_shipper_is_in_each_archive_apart_from_the_broker_and_in_what_is_told_of_it(
    built, tmp_path
):
    hosts = ["cp311-x86_64", "cp313-aarch64"]
    Release("1.0", tmp_path).make(Sources("c0ffee", {}), "kazoo==2.11.0\n", "kafka-python==2.2.15\n", hosts)
    for host in hosts:
        with tarfile.open(tmp_path / f"landline-1.0-{host}.tar") as archive:
            assert f"journal-shipper/{SHIPPER}" in archive.getnames()
            assert SHIPPER not in archive.getnames(), "pip would find it beside the broker's"
    manifest = json.loads((tmp_path / "landline-1.0.json").read_text())
    assert manifest["journal_shipper"] == [SHIPPER]
    assert SHIPPER in manifest["archives"][hosts[0]]["wheels"]
    bill = json.loads((tmp_path / "landline-1.0.cdx.json").read_text())
    assert "pkg:pypi/kafka-python@2.2.15" in [each["purl"] for each in bill["components"]]


def test_all_files_have_their_hash_in_the_list(built, tmp_path):
    Release("1.0", tmp_path).make(
        Sources("c0ffee", {"file": b"one"}), "", "kafka-python==2.2.15\n", ["cp311-x86_64"]
    )
    listed = dict(
        reversed(line.split("  ")) for line in (tmp_path / "landline-1.0.sha256").read_text().splitlines()
    )
    found = {path.name for path in tmp_path.iterdir()} - {"landline-1.0.sha256"}
    assert listed == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in found}
    assert len(found) == 5
    collection = json.loads((tmp_path / "landline-1.0.json").read_text())["collection"]
    assert listed[collection["file"]] == collection["sha256"]


def test_the_bill_names_each_component_once_and_is_the_same_each_time():
    twice = [*WHEELS, ("lz4-4.4.5-cp311-cp311-manylinux_2_17_aarch64.whl", "c" * 64)]
    bill = json.loads(bill_of_materials("1.0", twice, DEPLOYING, CONNECTOR[:1]))
    hashes = {one["purl"]: sorted(each["content"] for each in one["hashes"]) for one in bill["components"]}
    jar = CONNECTOR[0]
    assert hashes == {
        "pkg:generic/landline-cluster@1.0?file_name=landline-cluster-1.0.tar.gz": ["d" * 64],
        f"pkg:maven/{jar.group}/{jar.name}@{jar.version}": [jar.sha256],
        "pkg:pypi/kazoo@2.11.0": ["a" * 64],
        "pkg:pypi/lz4@4.4.5": ["b" * 64, "c" * 64],
    }
    assert bill["metadata"]["component"]["version"] == "1.0"
    assert bill_of_materials("1.0", twice, DEPLOYING, CONNECTOR) == bill_of_materials(
        "1.0", reversed(twice), DEPLOYING, reversed(CONNECTOR)
    )


def test_the_bill_is_valid_and_has_the_jars_and_the_collection_as_the_manifest_has_them(built, tmp_path):
    Release("1.0", tmp_path).make(
        Sources("c0ffee", {"file": b"one"}), "", "kafka-python==2.2.15\n", ["cp311-x86_64"]
    )
    text = (tmp_path / "landline-1.0.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill, manifest = json.loads(text), json.loads((tmp_path / "landline-1.0.json").read_text())
    listed = {
        f"{one['name']}-{one['version']}": one["hashes"][0]["content"]
        for one in bill["components"]
        if not one["purl"].startswith("pkg:pypi/")
    }
    assert len(manifest["jars"]) == 4
    assert listed == {
        "landline-cluster-1.0": manifest["collection"]["sha256"],
        **{name.removesuffix(".jar"): sha256 for name, sha256 in manifest["jars"].items()},
    }
    (depended,) = [each["dependsOn"] for each in bill["dependencies"] if each["ref"] == "landline"]
    assert sorted(depended) == sorted(one["bom-ref"] for one in bill["components"])


def test_the_broker_must_report_the_projects_version(tmp_path):
    (tmp_path / "broker").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.1"\n')
    (tmp_path / "broker/__init__.py").write_text('__version__ = "1.0"\n')
    with pytest.raises(SystemExit, match=r"pyproject.toml has version 1\.1, broker/__init__.py 1\.0"):
        project_version(tmp_path)
