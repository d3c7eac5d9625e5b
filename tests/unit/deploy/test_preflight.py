"""What a deployment finds wrong before it changes anything: each fault is named, and a sound host has none."""

import pytest

from tests.support.deploy_code import ROOT
from tests.support.preflight_hosts import GROUPS, KNOWN, NOW, found, host, place, preflight


@pytest.fixture
def hosts():
    return [host("a", 1), host("b", 2)]


def test_sound_hosts_have_no_faults(hosts):
    assert found(hosts) == []
    assert preflight.preflight_table([], False) == []


def test_a_host_that_is_new_has_none_either(hosts):
    hosts[1]["seen"] |= {"data": {}, "properties_files": [], "cluster_id": None, "files": []}
    hosts[1]["seen"]["versions"]["java"] = ""  # comes with ZooKeeper's package
    assert found(hosts) == []


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            {"all": ["a"], "brokers": ["a"], "zookeper": ["a"]},
            "no playbook knows the group zookeper: is it zookeeper?",
        ),
        ({"all": ["a"], "zookeeper": ["a"]}, "the group brokers is missing: nothing would be deployed to it"),
        (
            {"all": ["a"], "zookeeper": ["a"], "brokers": []},
            "the group brokers is empty: nothing would be deployed to it",
        ),
    ],
)
def test_a_group_that_is_missing_or_misspelt_is_a_fault(hosts, groups, words):
    assert ("groups", [], words, False) in found(hosts, groups)


def test_a_misspelt_group_beside_the_right_one_is_a_warning_where_its_hosts_are_left_out(hosts):
    words = "no playbook knows the group brokres: is it brokers? Nothing is deployed to c, which no group of "
    words += "Landline's has"
    assert found(hosts, {**GROUPS, "brokres": ["c", "b"]}) == [("groups", [], words, True)]
    assert found(hosts, {**GROUPS, "brokres": ["a", "b"]}) == []
    assert found(hosts, {**GROUPS, "brokres": []}) == []


def test_groups_of_the_operators_own_are_none(hosts):
    assert found(hosts, {**GROUPS, "backup": ["a"], "frankfurt": ["b"], "kafka": ["a", "b"]}) == []


def test_hosts_in_none_of_landlines_groups_have_no_faults(hosts):
    switch, web, left = host("switch1", 3), host("web", 4), host("c", 5)
    for each in (switch, web, left):
        each |= {"groups": ["network"], "needs": []}
    switch["seen"] = unreachable("Permission denied (publickey).")
    web["seen"] |= {"versions": {"systemd": "219", "python": "2.7", "java": ""}, "names": {"a.example": []}}
    web["seen"]["time"] = NOW - 500
    web["variables"] = ["broker_frist_id"]
    left["seen"] = {"skipped": True}
    assert found([*hosts, switch, web, left]) == []
    switch["groups"] = ["prometheus"]
    assert found([*hosts, switch]) == [
        ("reach", ["switch1"], "no login: Permission denied (publickey).", False)
    ]


def test_a_check_is_allowed_for_all_when_all_of_landlines_hosts_allow_it(hosts):
    hosts[0]["settings"]["allow"] = hosts[1]["settings"]["allow"] = ["groups"]
    switch = {**host("switch1", 3), "groups": ["network"]}
    told = found([*hosts, switch], {"all": ["a"], "brokers": ["a"]})
    assert [(check, is_warning) for check, _, _, is_warning in told] == [("groups", True)]


def test_a_cluster_with_another_ensemble_needs_no_group_of_zookeeper(hosts):
    groups = {key: names for key, names in GROUPS.items() if key != "zookeeper"}
    assert [each[0] for each in found(hosts, groups)] == ["groups"]
    for each in hosts:
        each["variables"].append("broker_zookeeper_connect")
    assert found(hosts, groups) == []


def test_a_variable_that_is_almost_a_roles_is_a_warning(hosts):
    hosts[1]["variables"] += ["broker_frist_id", "broker_of_mine"]
    assert found(hosts) == [
        ("variables", ["b"], "no role has a variable broker_frist_id: is it broker_first_id?", True)
    ]


def unreachable(words):
    return {"unreachable": True, "msg": f"Task failed: {words}"}


def test_a_host_that_is_off_is_left_out_of_a_cluster_that_runs_and_a_fault_of_a_new_one(hosts):
    hosts[1]["seen"] = unreachable("ssh: connect to host 192.0.2.2 port 22: No route to host")
    ((check, names, what, is_warning),) = found(hosts)
    assert (check, names, is_warning) == ("reach", ["b"], True)
    assert what == "not reached, and left out: ssh: connect to host 192.0.2.2 port 22: No route to host"
    hosts[0]["seen"] |= {"data": {}, "properties_files": []}
    ((_, _, what, is_warning),) = found(hosts)
    assert "in a cluster that is still to be made" in what
    assert not is_warning


@pytest.mark.parametrize(
    "words",
    [
        "Permission denied (publickey).",
        "Host key verification failed.",
        "ssh: Could not resolve hostname kafka-b: Name or service not known",
    ],
)
def test_a_login_that_fails_is_a_fault_whatever_runs(hosts, words):
    hosts[1]["seen"] = unreachable(words)
    assert found(hosts) == [("reach", ["b"], f"no login: {words}", False)]


def test_a_host_that_cannot_be_looked_at_is_a_fault(hosts):
    hosts[1]["seen"] = {"failed": False, "msg": "Missing sudo password"}
    assert found(hosts) == [("reach", ["b"], "could not be looked at: Missing sudo password", False)]


FULL = "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']"


@pytest.mark.parametrize(
    ("stdout", "stderr", "said"),
    [
        (
            "",
            f"Traceback (most recent call last):\n  raise\n{FULL}\n",
            f"({FULL}): is its disk full, or read-only?",
        ),
        # With a terminal everything is on stdout, and ssh has the last word.
        (
            f"Traceback\r\n{FULL}\r\n",
            "Shared connection to 192.0.2.2 closed.\r\n",
            f"({FULL}): is its disk full,",
        ),
        ("", f"Error: {'x' * 1000}\n\n", f"(Error: {'x' * 193}...)"),
    ],
)
def test_a_host_that_cannot_run_the_look_is_told_of_with_what_it_said(hosts, stdout, stderr, said):
    words = "Module result deserialization failed: No start of json char found"
    hosts[1]["seen"] = {"failed": True, "msg": words, "module_stdout": stdout, "module_stderr": stderr}
    ((check, names, what, is_warning),) = found(hosts)
    assert (check, names, is_warning) == ("reach", ["b"], False)
    assert what.startswith(f"could not be looked at: {words} {said}")
    assert len(what) < 400


def test_what_the_roles_find_wrong_with_variables_is_said_once_for_all_hosts(hosts):
    for each in hosts:
        each["unsettled"] = [{"role": "broker", "msg": "replication factor 3,\n  of which 4 in sync"}]
    hosts[0]["needs"][0]["wrong"] = ["make wheelhouse"]
    hosts[0]["needs"][0]["files"] = [{"path": "/opt/x", "wrong": "there is no release"}]
    assert found(hosts) == [
        ("settings", ["a", "b"], "replication factor 3, of which 4 in sync", False),
        ("settings", ["a"], "make wheelhouse", False),
        ("settings", ["a"], "there is no release", False),
    ]


def test_an_address_for_http_that_is_not_the_hosts_own_is_a_fault(hosts):
    words = "broker_http_host=192.0.2.9 is no address of this host"
    hosts[0]["seen"]["not_own"], hosts[1]["seen"]["not_own"] = words, None
    assert found(hosts) == [("settings", ["a"], words, False)]


def test_a_release_without_an_archive_for_a_host_that_lacks_it_is_a_fault(hosts):
    archives = {"cp311-x86_64": {"path": "/build/landline-1.0-cp311-x86_64.tar", "is_there": True}}
    release = {
        "version": "1.0",
        "dir": "/build",
        "archives": archives,
        "installed": "/opt/.installed",
        "make": "make",
    }
    for each in hosts:
        each["needs"][0]["release"] = release
    assert found(hosts) == []
    hosts[1]["seen"]["system"]["machine"] = "aarch64"
    lacks = "landline_version is 1.0, which is not installed, and"
    words = (
        f"{lacks} /build has no archive of it for Python 3.11 on aarch64, but for cp311-x86_64: make, or set "
        "landline_version or common_python to what there is"
    )
    assert found(hosts) == [("settings", ["b"], words, False)]
    hosts[1]["seen"]["files"].append("/opt/.installed")
    archives["cp311-x86_64"]["is_there"] = False
    words = f"{lacks} its archive /build/landline-1.0-cp311-x86_64.tar is missing: copy it there, or make"
    assert found(hosts) == [("settings", ["a"], words, False)]
    # That is a fault of its own, or a warning if packages bring it.
    hosts[0]["seen"]["versions"]["python"] = ""
    assert [each[0] for each in found(hosts)] == ["versions"]


def test_an_archive_is_looked_for_where_it_is_named(tmp_path):
    (tmp_path / "one.tar").write_text("")
    archives = {"cp311-x86_64": {"file": "one.tar"}, "cp311-aarch64": {"file": "two.tar"}, "cp312-x86_64": {}}
    told = preflight.preflight_archives(archives, str(tmp_path))
    assert {platform: each["is_there"] for platform, each in told.items()} == {
        "cp311-x86_64": True,
        "cp311-aarch64": False,
        "cp312-x86_64": False,
    }


def test_ids_that_two_have_are_a_fault(hosts):
    hosts[1]["needs"][0]["ids"] = [1, 2]
    hosts[1]["needs"][1]["ids"] = [1]
    words = "is on a and b: set {} on every host, with room for more"
    assert [each[:3] for each in found(hosts)] == [
        ("ids", ["a", "b"], f"ZooKeeper server 1 {words.format('zookeeper_id')}"),
        ("ids", ["a", "b"], f"broker 1 {words.format('broker_first_id')}"),
    ]


def test_an_id_that_is_no_number_is_a_fault_of_its_host_and_hides_no_other(hosts):
    hosts[0]["needs"][1]["ids"] = ["x"]
    hosts[1]["needs"][0]["ids"] = [1]
    words = "ZooKeeper server 'x': zookeeper_id has to be a whole number"
    assert ("ids", ["a"], words, False) in found(hosts)
    assert [each[:2] for each in found(hosts)] == [("ids", ["a"]), ("ids", ["a", "b"])]


def test_a_value_that_a_check_cannot_read_hides_nothing_of_the_other_checks(hosts):
    hosts[0]["settings"]["clock_s"] = "soon"
    hosts[1]["needs"][0]["port"] = "any"
    hosts[1]["seen"]["memory_mb"] = 512
    told = [(check, names, is_warning) for check, names, _, is_warning in found(hosts)]
    assert told == [("memory", ["b"], False), ("clock", ["a"], False), ("names", [], False)]
    assert (
        "clock",
        ["a"],
        "could not be checked: could not convert string to float: 'soon'",
        False,
    ) in found(hosts)


def test_a_port_that_another_process_has_or_two_want_is_a_fault(hosts):
    hosts[0]["seen"]["taken"] = [{"port": 9092, "process": "nginx, process 7"}]
    hosts[1]["needs"][0]["ports"].append({"port": 2181, "for": "HTTP", "set_by": "broker_http_port"})
    by = "another one is set by"
    assert [each[:3] for each in found(hosts)] == [
        ("ports", ["a"], f"port 9092 for the listener is in use by nginx, process 7: {by} broker_kafka_port"),
        (
            "ports",
            ["b"],
            f"port 2181 is wanted for HTTP and for ZooKeeper's clients: {by} broker_http_port or zookeeper_client_port",
        ),
    ]


def test_a_disk_that_is_not_mounted_is_a_fault(hosts):
    hosts[0]["settings"]["mounts"] = ["/data"]
    hosts[0]["needs"][0]["mounts"] = ["/data"]
    hosts[0]["seen"]["directories"]["/data"] = place()
    ((check, names, what, is_warning),) = found(hosts)
    assert (check, names, is_warning) == ("mounts", ["a"], False)
    assert what == "/data is no mount point: its disk is missing, and data would go to the one of /"
    hosts[0]["seen"]["directories"]["/data"] = place(is_mount=True, mount="/data", device=7)
    assert found(hosts) == []


def test_a_disk_that_the_host_itself_knows_of_is_missed(hosts):
    what = "nothing is mounted at /data/2 for /data/2/broker-1 (it is in /etc/fstab)"
    hosts[0]["seen"]["missing_mounts"] = [{"point": "/data/2", "what": what, "set_by": "broker_data_dirs"}]
    words = (
        f"{what}: mount it. If no disk is to be there any more, change broker_data_dirs, or remove the line that "
        "says so"
    )
    assert found(hosts) == [("mounts", ["a"], words, False)]
    # Where the inventory names it too, it is told of once.
    hosts[0]["needs"][0]["mounts"] = ["/data/2/"]
    hosts[0]["seen"]["directories"]["/data/2/"] = place()
    assert [each[2].partition(":")[0] for each in found(hosts)] == ["/data/2/ is no mount point"]


def test_a_directory_that_cannot_be_written_to_is_a_fault(hosts):
    data = "/var/lib/landline/broker-1"
    for more, words in (
        ({"read_only": True}, "is mounted read-only (/)"),
        ({"is_directory": False}, "is no directory"),
    ):
        hosts[0]["seen"]["directories"][data] = place(**more)
        assert words in found(hosts)[0][2]


def test_a_full_disk_is_a_fault_and_where_brokers_run_only_a_warning(hosts):
    for each, number in zip(hosts, (1, 2), strict=True):
        each["seen"]["directories"][f"/var/lib/landline/broker-{number}"] = place(free_mb=100, free_files=3)
    hosts[1]["seen"] |= {"data": {}, "properties_files": []}
    assert [(each[0], each[1][0], each[3]) for each in found(hosts)] == [
        ("space", "a", True),
        ("space", "a", True),
        ("space", "b", False),
        ("space", "b", False),
    ]
    assert found(hosts)[0][2] == "100 MB free at /, 1024 MB wanted for /var/lib/landline/broker-1"


def test_too_little_memory_is_a_fault_and_for_spark_only_a_warning(hosts):
    hosts[0]["seen"]["memory_mb"] = 512
    hosts[1]["needs"].append({"role": "spark", "memory_mb": 4000, "can_wait": True})
    assert [each[1:] for each in found(hosts)] == [
        (["a"], "512 MB of memory, 640 MB wanted by its brokers and ZooKeeper", False),
        (
            ["b"],
            "2000 MB of memory, 4640 MB wanted with Spark's workers (spark_worker_memory, spark_workers_per_host)",
            True,
        ),
    ]


def test_a_clock_that_is_off_is_a_fault_and_time_the_question_took_is_not(hosts):
    hosts[0]["seen"]["time"] = NOW - 60
    hosts[1]["seen"]["time"] = NOW + 60
    assert [each[2] for each in found(hosts)] == [
        "its clock is 58 s behind this machine's",
        "its clock is at least 60 s ahead of this machine's",
    ]
    hosts[0]["seen"] |= {"asked_at": NOW - 120, "time": NOW - 60}
    hosts[1]["seen"]["time"] = NOW + 4
    assert found(hosts) == []


def test_a_clock_that_nothing_keeps_right_is_a_warning(hosts):
    hosts[0]["seen"]["synchronised"] = False
    hosts[1]["seen"]["synchronised"] = None  # a container
    assert [each[:2] + each[3:] for each in found(hosts)] == [("time_sync", ["a"], True)]


def test_a_name_that_does_not_lead_to_its_host_is_a_fault(hosts):
    hosts[0]["seen"]["names"] |= {"b.example": []}
    assert found(hosts) == [
        ("names", ["a"], "cannot resolve b.example, which is b (broker_advertised_host)", False)
    ]
    hosts[0]["seen"]["names"] |= {"b.example": ["127.0.1.1"]}
    ((_, names, what, is_warning),) = found(hosts)
    assert (names, what, is_warning) == (
        ["a"],
        "resolves b.example, which is b, to itself (127.0.1.1)",
        False,
    )


def test_a_hosts_own_name_may_lead_to_its_loopback_as_debian_has_it(hosts):
    hosts[1]["seen"]["names"] |= {"b.example": ["127.0.1.1"]}
    assert found(hosts) == []


@pytest.mark.parametrize(
    ("told", "count"), [(["127.0.1.1"], 1), (["127.0.1.1", "192.0.2.2"], 0), (["192.0.2.2"], 0)]
)
def test_a_server_of_zookeeper_that_listens_on_its_loopback_is_a_fault(hosts, told, count):
    """Debian's /etc/hosts names the host at 127.0.1.1. Nobody of the ensemble reaches a server there."""
    zookeeper = hosts[1]["needs"][1]
    zookeeper |= {"address": "b.example", "address_by": "zookeeper_address", "port": 2181, "peers": True}
    hosts[1]["seen"]["names"] |= {"b.example": told}
    assert [each[:2] for each in found(hosts)] == [("names", ["b"])] * count
    zookeeper["peers"] = False  # the only one, or it listens on all interfaces
    assert found(hosts) == []


def test_a_name_that_leads_elsewhere_is_a_warning(hosts):
    """As behind NAT."""
    hosts[0]["seen"]["names"] |= {"b.example": ["198.51.100.7"]}
    words = "resolve the name of b to 198.51.100.7, which is none of its addresses"
    assert found(hosts) == [("names", ["a"], words, True)]


def test_one_address_for_two_hosts_is_a_fault(hosts):
    for each in hosts:
        each["needs"][0]["address"] = "192.0.2.1"
    words = "have one address, 192.0.2.1, port 9092 (broker_advertised_host)"
    assert found(hosts) == [("names", ["a", "b"], words, False)]


def test_a_python_that_packages_of_the_inventory_bring_is_only_told_of(hosts):
    hosts[1]["seen"]["versions"]["python"] = ""
    hosts[1]["needs"][0] |= {"python": "/usr/bin/python3.12", "python_packages": ["python3.12"]}
    words = "/usr/bin/python3.12 is missing: common_packages (python3.12) has to bring it"
    assert found(hosts) == [("versions", ["b"], words, True)]
    hosts[1]["seen"]["versions"]["python"] = "3.9"
    assert [each[3] for each in found(hosts)] == [False]


TOO_OLD = (
    "Ansible runs its modules there by Python 3.9: they need 3.11. Install one beside it, and set "
    "ansible_python_interpreter and common_python to it"
)


@pytest.mark.parametrize(
    ("program", "version", "words"),
    [
        ("systemd", "245", "systemd 245: the units need 247"),
        ("python", "3.9", "/usr/bin/python3 is Python 3.9: common_python has to be one of 3.11"),
        ("python", "", "/usr/bin/python3 is no Python: common_python has to be one of 3.11"),
        ("ansible", "3.9", TOO_OLD),
        ("java", "7", "java is 7: zookeeper needs 8"),
        ("java", "", "java is missing, though /usr/share/java/zookeeper.jar is there: install a JRE"),
    ],
)
def test_a_program_that_is_too_old_or_missing_is_a_fault(hosts, program, version, words):
    hosts[1]["seen"]["versions"][program] = version
    assert found(hosts) == [("versions", ["b"], words, False)]


def test_a_distribution_that_was_not_tried_is_a_warning(hosts):
    hosts[1]["seen"]["system"] = {"id": "debian", "version": "11", "machine": "x86_64"}
    assert found(hosts) == [("versions", ["b"], "debian 11: this was not tried there", True)]


def test_a_check_that_a_host_allows_is_a_warning_there_and_elsewhere_a_fault(hosts):
    for each in hosts:
        each["seen"]["versions"]["systemd"] = "245"
    hosts[0]["settings"]["allow"] = ["versions"]
    assert [(names, is_warning) for _, names, _, is_warning in found(hosts)] == [
        (["a"], True),
        (["b"], False),
    ]


def test_the_table_has_a_line_for_each_fault_in_the_order_of_the_checks(hosts):
    for each in hosts:
        each["seen"]["versions"]["systemd"] = "245"
    hosts[1]["seen"]["memory_mb"] = 1
    findings = preflight.preflight_findings(hosts, {"all": []}, KNOWN, NOW)
    assert preflight.preflight_table(findings, False) == [
        "check     hosts  what is wrong",
        "groups    all    the group brokers is missing: nothing would be deployed to it",
        "groups    all    the group zookeeper is missing: nothing would be deployed to it",
        "memory    b      1 MB of memory, 640 MB wanted by its brokers and ZooKeeper",
        "versions  a, b   systemd 245: the units need 247",
    ]


def test_the_roles_variables_are_known_and_those_that_stand_for_them():
    known = preflight.preflight_known(str(ROOT / "roles"))
    assert {
        "broker_first_id",
        "landline_version",
        "brokers_per_host",
        "zookeeper_id",
        "preflight_allow",
    } <= set(known)


@pytest.mark.parametrize(("written", "megabytes"), [("512m", 512), ("2g", 2048), ("1G", 1024), ("300", 300)])
def test_sparks_memory_is_read_as_spark_writes_it(written, megabytes):
    assert preflight.preflight_megabytes(written) == megabytes
