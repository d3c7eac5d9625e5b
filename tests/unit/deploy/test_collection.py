"""The collection landline.cluster: what its archive holds, and that it serves where there is no checkout."""

import ast
import configparser
import io
import json
import re
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.support.elsewhere import Elsewhere
from tools import collection, role_docs
from tools.release import project_version, sources

ROOT = Path(__file__).parents[3]
INVENTORY = """\
all:
  vars: {landline_version: 0.5.0}
  children:
    zookeeper: {hosts: {kafka-a: , kafka-b: , kafka-c: }}
    brokers: {hosts: {kafka-a: , kafka-b: , kafka-c: }}
"""
MODULES = {path.stem for path in (ROOT / "plugins/modules").glob("*.py")}
CALLBACKS = {path.stem for path in (ROOT / "plugins/callback").glob("*.py")}
LOOKUPS = {path.stem for path in (ROOT / "plugins/lookup").glob("*.py")}


def filters_of(path):
    """The names that a file gives to its filters."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    (names,) = [node for node in functions if node.name == "filters"]
    return {key.value for part in ast.walk(names) if isinstance(part, ast.Dict) for key in part.keys}


@pytest.fixture(scope="module")
def archive():
    """The archive's name, and its files by their names."""
    return collection.build(sources(ROOT, allow_dirty=True).files, project_version(ROOT))


def test_the_archive_has_what_a_collection_needs_and_nothing_of_its_development(archive):
    name, content = archive
    assert name == f"landline-cluster-{project_version(ROOT)}.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        names = [entry.name for entry in tar if entry.isfile()]
    tops = {each.split("/")[0] for each in names}
    assert tops == {"MANIFEST.json", "FILES.json", "README.md", "LICENSE", "CHANGELOG.md", "changelogs", "meta",
                    "playbooks", "plugins", "roles", "tests"}  # fmt: skip
    tests = {each for each in names if each.startswith("tests/")}
    assert tests == {"tests/config.yml", "tests/sanity/ignore-2.19.txt"}
    assert "playbooks/compare.yml" not in names


def test_the_same_files_give_the_same_archive_in_whatever_order_the_disk_has_them(archive):
    _, content = archive
    other = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=other, mode="w:gz") as new,
    ):
        for entry in reversed(old.getmembers()):
            found = old.extractfile(entry)
            text = found.read() if found else b""
            if entry.name == "FILES.json":
                listed = json.loads(text)
                text = json.dumps(listed | {"files": listed["files"][::-1]}).encode()
            entry.mtime, entry.size, entry.uname = 1700000000, len(text), "somebody"
            new.addfile(entry, io.BytesIO(text))
    assert collection.normalised(other.getvalue()) == content


def test_its_playbooks_and_modules_are_found_by_name_where_there_is_no_checkout(archive, tmp_path):
    name, content = archive
    (tmp_path / name).write_bytes(content)
    (tmp_path / "hosts.yml").write_text(INVENTORY)
    elsewhere = Elsewhere(tmp_path, tmp_path / name)
    texts = {path.stem: path.read_text() for path in (ROOT / "playbooks").glob("*.yml")}
    imported = re.findall(r"import_playbook: landline\.cluster\.(\w+)", "".join(texts.values()))
    names = (texts.keys() - set(imported) - {"compare"}) | {"deploy"}
    assert {"restart", "backup"} <= names
    playbooks = ["site.yml", *(f"landline.cluster.{name}" for name in sorted(names))]
    checked = elsewhere.run("ansible-playbook", "--inventory=hosts.yml", "--syntax-check", *playbooks)
    assert len(re.findall(r"^playbook: ", checked, re.MULTILINE)) == len(playbooks)
    names = sorted(f"landline.cluster.{name}" for name in MODULES)
    documented = json.loads(elsewhere.run("ansible-doc", "--type=module", "--json", *names))
    assert sorted(documented) == names
    for name, found in documented.items():
        assert found["doc"]["description"], name
        assert name in found["examples"], name
        assert found["return"], name


def test_all_that_is_ours_is_named_in_full():
    """A short name is found in the checkout that it is in, and nowhere else."""
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    filters = {name for path in (ROOT / "plugins/filter").glob("*.py") for name in filters_of(path)}
    used = re.compile(rf"\|\s*({'|'.join(filters)})\b(?!:)")
    short = []

    def look(node, path):
        if isinstance(node, dict):
            short.extend(f"{path}: {key}" for key in MODULES & node.keys() if "name" in node)
            for key, value in node.items():
                if str(key).endswith(("import_role", "include_role")) and value["name"] in roles:
                    short.append(f"{path}: {value['name']}")
                look(value, path)
        elif isinstance(node, list):
            for each in node:
                look(each, path)
        elif isinstance(node, str):
            short.extend(f"{path}: {name}" for name in used.findall(node))

    for path in [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/*/*.yml")]:
        look(yaml.safe_load(path.read_text()), path.relative_to(ROOT))
    assert not short


def test_no_variable_is_named_in_full():
    """Ansible refuses a point in a variable's name when the task runs, and not before."""
    refused = []

    def look(node, path):
        if isinstance(node, dict):
            for key in ("ansible.builtin.set_fact", "vars"):
                named = node.get(key) if isinstance(node.get(key), dict) else {}
                refused.extend(f"{path}: {name}" for name in named if not str(name).isidentifier())
        for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            look(each, path)

    for path in [*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/tasks/*.yml")]:
        look(yaml.safe_load(path.read_text()), path.relative_to(ROOT))
    assert not refused


def test_ansible_test_is_told_of_all_that_have_another_licence_than_ansible():
    lines = (ROOT / "tests/sanity/ignore-2.19.txt").read_text().splitlines()
    listed = [line.split()[0] for line in lines if "missing-gplv3-license" in line]
    assert listed == sorted(
        [f"plugins/callback/{name}.py" for name in CALLBACKS]
        + [f"plugins/lookup/{name}.py" for name in LOOKUPS]
        + [f"plugins/modules/{name}.py" for name in MODULES]
    )


def test_each_role_has_a_readme_of_its_arguments():
    for path, text in role_docs.pages().items():
        assert path.read_text() == text, f"{path}: run `make docs`"


def test_a_variable_that_names_a_group_says_that_the_playbooks_go_by_another():
    """Every play has the groups' names, and a preflight requires them."""
    for role, name, group in (
        ("broker", "broker_group", "brokers"),
        ("broker", "broker_zookeeper_group", "zookeeper"),
        ("zookeeper", "zookeeper_group", "zookeeper"),
    ):
        options = role_docs.spec_of(ROOT / "roles" / role)["options"]
        said = role_docs.sentence(options[name]["description"])
        assert (
            f"for plays of your own with this role; the collection's playbooks have the group {group}."
            in said
        )


def test_each_playbook_of_the_collection_is_in_its_document():
    """But for parts of others, which are named after the table."""
    text = (ROOT / "docs/collection.md").read_text()
    table = text.split("| playbook | what it does |")[1].split("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.strip().splitlines())))
    there = {path.stem for path in (ROOT / "playbooks").glob("*.yml")}
    assert there - told == {"compare", "inventory", "security", "quorum", "refused"}
    assert told <= there


def test_the_document_has_what_the_playbooks_count_on_in_ansibles_settings():
    """Those who have no checkout have no ansible.cfg of it."""
    text = (ROOT / "docs/collection.md").read_text()
    (shown,) = re.findall(r"^```text\n(\[defaults\].*?)^```$", text, re.MULTILINE | re.DOTALL)
    told, ours = configparser.ConfigParser(), configparser.ConfigParser()
    told.read_string(shown)
    ours.read(ROOT / "ansible.cfg")
    assert {name for section in told.sections() for name in told[section]} >= {
        "forks", "ssh_args", "pipelining", "host_pattern_mismatch",
    }  # fmt: skip
    for section in told.sections():
        assert dict(told[section]).items() <= dict(ours[section]).items()


def test_the_changelog_has_each_release_in_the_form_of_ansibles_tools():
    text = "# Changelog\n## Unreleased\n### Added\n- Soon.\n## 1.1.0 - 2026-01-02\n### Fixed\n- One\n  thing.\n- Two.\n"
    assert collection.changelog(text) == {
        "ancestor": None,
        "releases": {
            "1.1.0": {"changes": {"bugfixes": ["One thing.", "Two."]}, "release_date": "2026-01-02"}
        },
    }


def test_the_collection_has_the_version_of_the_broker():
    described = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    released = collection.changelog((ROOT / "CHANGELOG.md").read_text())["releases"]
    assert described["version"] == project_version(ROOT) == next(iter(released))
