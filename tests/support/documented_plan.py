"""The documented commands that a test cannot run as written, the reason, and what is run instead.

All others are run as written. So a new command in the documentation runs, or fails, or is listed here with a
reason. The verb, the options and the paths of a listed command are still checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

HOURS = "takes minutes to hours"
PART = "is what runs this test, or a part of it"
MEASURED = "needs a comparison, which takes hours"
ELSEWHERE = "is typed on a host, not on the controller"
QUIET = "judges times, for which nothing else may run"
MOVES = "moves partitions; tests/cluster/test_moves.py does"
PLAYBOOK = ".venv/bin/ansible-playbook --help"
LAB = ".venv/bin/lab exec default h1 --"


@dataclass(frozen=True, slots=True)
class Instead:
    """A replacement: ``command`` is run instead of the documented one.

    With ``is_help``, its output must contain each option of the documented command.
    """

    reason: str
    command: str
    is_help: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of make that is not run: `make -n` is run as written, and its program is asked for
    its options.
    """

    reason: str
    program: str = ""


VERBS: Final = {
    "test": Verb(PART),
    "unit": Verb(PART),
    "differential": Verb(PART),
    "docs-test": Verb(PART),
    "lint": Verb(PART),
    "cluster-up": Verb("made the cluster that the others are run on"),
    "cluster-down": Verb("ends the cluster that the others are run on"),
    "apply": Verb("rolls for minutes; tests/cluster/test_releases.py does"),
    "restart": Verb(
        "rolls for minutes; tests/cluster/test_playbooks_under_load.py and tests/cluster/test_rolls.py do"
    ),
    "reboot": Verb("reboots every host; tests/cluster/test_reboot.py does"),
    "migrate": Verb("needs hosts with Apache Kafka; tests/cluster/test_migrate.py has them", PLAYBOOK),
    "certificates": Verb("needs a secured cluster; tests/cluster/test_secured_by_playbook.py has one"),
    "release": Verb(
        "refuses what is not committed; tests/cluster/test_sample_inventory.py makes two",
        ".venv/bin/python -m tools.release --help",
    ),
    "wheel": Verb("compiles for minutes; tests/unit/deploy/test_wheels.py builds both"),
    "sanity": Verb("takes a minute, and installs linters from PyPI"),
    "day-two": Verb("takes two hours"),
    "restore": Verb("needs an ensemble that lost its tree; tests/cluster/test_zookeeper_grows.py does it"),
    "rebalance": Verb(MOVES, PLAYBOOK),
    "decommission": Verb(MOVES, PLAYBOOK),
    "replace": Verb(MOVES),
    "perf-check": Verb(PART, ".venv/bin/python -m bench.guard --help"),
    "perf-compiled": Verb(PART, ".venv/bin/python -m bench.guard --help"),
    "perf-times": Verb(QUIET, ".venv/bin/python -m bench.guard --help"),
    "perf-times-compiled": Verb(QUIET, ".venv/bin/python -m bench.guard --help"),
    "perf-baseline": Verb("writes a committed file"),
    "cost": Verb(PART, ".venv/bin/python -m bench.cost --help"),
    "bench": Verb(HOURS, ".venv/bin/python -m bench --help"),
    "chaos": Verb(HOURS, ".venv/bin/python -m chaos walk --help"),
    "compare-publish": Verb("writes committed files, and " + MEASURED),
    "compare": Verb(HOURS, ".venv/bin/python -m compare run --help"),
}


INSTEAD: Final = {
    # -- README
    "cp -r inventory/sample inventory/mine": Instead(
        "would write into the checkout", "cp -r inventory/sample {scratch}/copy"
    ),
    "make deploy INVENTORY=inventory/mine/hosts.yml": Instead(
        "would roll: the lab's brokers have other racks",
        "make deploy INVENTORY={scratch}/mine/hosts.yml ANSIBLE_ARGS='--check --tags zookeeper,spark'",
    ),
    # -- CONTRIBUTING
    ".venv/bin/pre-commit install": Instead(
        "would put a hook into the checkout's git", ".venv/bin/pre-commit validate-config"
    ),
    ".venv/bin/uv pip compile pyproject.toml --group dev --generate-hashes --no-annotate --no-header"
    " --python-version 3.11 -o requirements.lock": Instead(
        "writes a committed file", ".venv/bin/uv pip compile --help", is_help=True
    ),
    # -- docs/collection.md; test_sample_inventory.py installs a collection, and deploys by it
    "sha256sum --check --ignore-missing landline-<version>.sha256": Instead(
        "needs a release; tests/unit/deploy/test_release.py compares the checksums", "sha256sum --help", is_help=True
    ),
    "ansible-galaxy collection install landline-cluster-<version>.tar.gz": Instead(
        "changes this user's collections", ".venv/bin/ansible-galaxy collection install --help"
    ),
    "ansible-playbook --inventory hosts.yml landline.cluster.deploy": Instead(
        "is for an inventory of the reader's own",
        ".venv/bin/ansible-playbook --inventory {scratch}/mine/hosts.yml landline.cluster.deploy --syntax-check",
    ),
    "ansible-doc --type module landline.cluster.broker_health": Instead(
        "finds the installed collection, and here the checkout",
        ".venv/bin/ansible-doc --type module landline.cluster.broker_health",
    ),
    # -- docs/lab.md
    "apt-get install systemd-container mmdebstrap nftables iproute2 openssh-client e2fsprogs": Instead(
        "changes this machine",
        "apt-get install --simulate systemd-container mmdebstrap nftables iproute2 openssh-client e2fsprogs",
    ),
    ".venv/bin/lab up --hosts 3": Instead("has been run: the lab is up", ".venv/bin/lab up --help", is_help=True),
    ".venv/bin/lab enter default -- ansible-playbook deploy.yml": Instead(
        "was run by `make cluster-up`", ".venv/bin/lab enter default -- ansible-playbook deploy.yml --list-tasks"
    ),
    ".venv/bin/lab down": Instead(
        "ends the cluster that the others are run on", ".venv/bin/lab down --name not-there"
    ),
    # -- docs/operations.md
    "make deploy INVENTORY=inventory/production/hosts.yml": Instead(
        "is README's, which is run, with another name", "make -n deploy INVENTORY={scratch}/mine/hosts.yml"
    ),
    "make preflight INVENTORY=inventory/production/hosts.yml": Instead(
        "asks for a release that was not made",
        "make preflight INVENTORY={scratch}/mine/hosts.yml ANSIBLE_ARGS='-e landline_version=dev'",
    ),
    "make plan PLAN=build/plan.json": Instead(
        "would write into the checkout", "make plan PLAN={scratch}/plan.json"
    ),
    "make backup INVENTORY=inventory/production/hosts.yml FILE=/srv/backup/landline.tree": Instead(
        "is for an inventory of the reader's own", "make backup FILE={scratch}/landline.tree"
    ),
    "/opt/landline/current/venv/bin/landline check-config /etc/kafka/server.properties": Instead(
        ELSEWHERE, f"{LAB} /opt/landline/current/venv/bin/landline check-config /etc/landline/broker-1.properties"
    ),
    "/opt/landline/current/venv/bin/landline may-stop /etc/landline/broker-3.properties --within 600 --for 600"
    " && systemctl reboot": Instead(
        ELSEWHERE,
        f"{LAB} /opt/landline/current/venv/bin/landline may-stop /etc/landline/broker-1.properties --dry-run",
    ),
    "/opt/landline/current/venv/bin/landline await-return /etc/landline/broker-3.properties": Instead(
        ELSEWHERE, f"{LAB} /opt/landline/current/venv/bin/landline await-return --help", is_help=True
    ),
    "/opt/landline/current/venv/bin/landline check-config NEW.properties"
    " --since /etc/landline/broker-1.properties": Instead(
        ELSEWHERE,
        f"{LAB} /opt/landline/current/venv/bin/landline check-config /etc/landline/broker-1.properties"
        " --since /etc/landline/broker-1.properties",
    ),
    "systemctl reload landline-broker@1": Instead(ELSEWHERE, f"{LAB} systemctl reload landline-broker@1"),
    "/opt/landline/current/venv/bin/landline doctor /etc/landline/broker-1.properties": Instead(
        ELSEWHERE, f"{LAB} /opt/landline/current/venv/bin/landline doctor /etc/landline/broker-1.properties"
    ),
    ".venv/bin/landline doctor --bootstrap-server kafka1.example.org:9092,kafka2.example.org:9092"
    " --command-config client.properties": Instead(
        "names hosts of the reader's own",
        f"{LAB} bash -c 'cd /etc/landline && /opt/landline/current/venv/bin/landline doctor --command-config"
        " client.properties --bootstrap-server $(sed -n s/^bootstrap.servers=//p client.properties)'",
    ),
    "journalctl -u 'landline-broker@*' -f": Instead(ELSEWHERE, f"{LAB} journalctl -u 'landline-broker@*' -n 1"),
    "journalctl -u landline-broker@1 --grep isr_shrunk": Instead(
        ELSEWHERE, f"{LAB} journalctl -u landline-broker@1 --grep broker_started"
    ),
    "systemctl status landline-broker@1": Instead(ELSEWHERE, f"{LAB} systemctl status landline-broker@1"),
    # -- docs/spark.md, docs/lake.md
    ".venv/bin/lab enter default -- fab spark.submit journal_stream": Instead(
        "is README's, which is run, by the job's name", ".venv/bin/lab enter default -- fab --help spark.submit"
    ),
    ".venv/bin/python -m pipeline.compare_batch --lake build/lake --output build/comparison.json": Instead(
        MEASURED, ".venv/bin/python -m pipeline.compare_batch --help", is_help=True
    ),
    # -- docs/report.md
    ".venv/bin/python -m compare.storm zookeeper --sessions 10000 --output build/storms.json": Instead(
        HOURS, ".venv/bin/python -m compare.storm zookeeper --help", is_help=True
    ),
    ".venv/bin/python -m compare.storm controller --brokers 1000 --output build/storms.json": Instead(
        HOURS, ".venv/bin/python -m compare.storm controller --help", is_help=True
    ),
    # -- docs/replication.md
    "REPLICATION_MODEL_EXAMPLES=20000 .venv/bin/pytest tests/property/test_replication_model.py --timeout 0": Instead(
        HOURS, ".venv/bin/pytest tests/property/test_replication_model.py --timeout 0 --collect-only -q"
    ),
}  # fmt: skip

KAFKAS: Final = {
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens.sh": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
"""The scripts of Kafka 3.9 that the documentation shows with the reader's addresses, and the class that each
runs: their options are checked, and `test_kafka_tools_on_sasl_ssl.py` runs those of docs/security.md.
"""

_ENTER: Final = ".venv/bin/lab enter default --"
RUNNING: Final = {
    ".venv/bin/landline standalone --port 9092": "ready on",
    f"{_ENTER} fab spark.submit pipeline/journal_stream.py": "/srv/landline/{lab}/journal_stream/records",
    f"{_ENTER} fab spark.submit lake": "/srv/landline/{lab}/orders",
}  # fmt: skip
"""Commands that run until ^C, by their beginning; and the sign that they work: a printed word, or a directory
that gets a Parquet file.
"""


def running(bare: str) -> str | None:
    """The sign that a command that runs until ^C works; None for commands that end."""
    return next(
        (sign for begin, sign in RUNNING.items() if bare == begin or bare.startswith(begin + " --args")), None
    )


def placed(text: str, lab: str, scratch: str) -> str:
    """The command with this test's lab and directories instead of the documentation's."""
    text = re.sub(r"(lab (?:enter|exec|shell|journal)) default\b", rf"\1 {lab}", text)
    text = text.replace("/srv/landline/default", f"/srv/landline/{lab}")
    text = re.sub(r"inventory/(?:production|mine)/hosts\.yml", f"{scratch}/mine/hosts.yml", text)
    return re.sub(r"\bbuild/(lake|comparison|report)\b", rf"{scratch}/\1", text)
