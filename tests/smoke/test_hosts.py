"""Every broker host: what is installed, whose it is, and that nothing has failed."""

from pathlib import Path

import yaml

from tests.smoke.conftest import config_dir, install_dir, machine, setting, user_and_group

COMMON = Path(__file__).parents[2] / "roles" / "common" / "defaults" / "main.yml"
KERNEL = "/etc/sysctl.d/60-landline.conf"


def current(host_name):
    return f"{install_dir(host_name)}/current"


def test_no_unit_of_the_cluster_has_failed(host_name):
    failed = machine(host_name).check_output(
        "systemctl list-units --failed --plain --no-legend 'landline-*' 'zookeeper*'"
    )
    assert failed == ""


def test_the_brokers_user_cannot_log_in(host_name):
    name, group = user_and_group(host_name)
    user = machine(host_name).user(name)
    assert user.shell == "/usr/sbin/nologin"
    assert user.group == group
    assert user.uid < 1000


def test_files_belong_to_whom_they_should(host_name):
    _, group = user_and_group(host_name)
    wanted = {
        config_dir(host_name): (oct(0o750), "root", group),
        KERNEL: (oct(0o644), "root", "root"),
        "/etc/systemd/journald.conf.d/60-landline.conf": (oct(0o644), "root", "root"),
        "/etc/needrestart/conf.d/landline.conf": (oct(0o644), "root", "root"),
        "/etc/systemd/system/landline-broker@.service.d/50-respawn.conf": (oct(0o644), "root", "root"),
        install_dir(host_name): (oct(0o755), "root", "root"),
        f"{install_dir(host_name)}/releases": (oct(0o755), "root", "root"),
    }
    seen = {path: machine(host_name).file(path) for path in wanted}
    assert {path: (oct(file.mode), file.user, file.group) for path, file in seen.items()} == wanted


def test_the_kernel_has_the_settings_of_the_role(host_name):
    host = machine(host_name)
    lines = host.file(KERNEL).content_string.splitlines()
    wanted = dict(line.split(" = ") for line in lines if not line.startswith("#"))
    # What the inventory has may be a template.
    keys = setting(host_name, "common_sysctl", default=yaml.safe_load(COMMON.read_text())["common_sysctl"])
    assert isinstance(keys, str) or wanted.keys() == keys.keys()
    for key, value in wanted.items():
        path = f"/proc/sys/{key.replace('.', '/')}"
        # A container may set those of its own network only.
        if host.run_test("test -w %s", path).rc == 0:
            assert host.check_output("cat %s", path).split() == value.split(), key


def test_the_current_release_is_complete(host_name):
    host = machine(host_name)
    link = host.file(current(host_name))
    assert link.is_symlink
    release = host.file(f"{current(host_name)}/.installed").content_string.splitlines()[0]
    assert release == link.linked_to.rsplit("/", 1)[1]


def test_all_hosts_have_the_same_release(cluster):
    releases = {machine(name).file(current(name)).linked_to for name in cluster.hosts("brokers")}
    assert len(releases) == 1


def test_every_module_of_the_broker_is_compiled(host_name):
    host = machine(host_name)
    find = "import os, broker; print(os.path.dirname(broker.__file__))"
    package = host.check_output(f"{current(host_name)}/venv/bin/python -c '{find}'")
    count = "find -L %s -name '*.%s' | wc -l"
    sources, compiled = (int(host.check_output(count, package, suffix)) for suffix in ("py", "pyc"))
    assert sources == compiled > 0


def test_the_command_answers(host_name):
    assert (
        machine(host_name)
        .check_output(f"{current(host_name)}/venv/bin/landline --version")
        .startswith("landline ")
    )
