"""Every broker host: what is installed, whose it is, and that nothing has failed."""

import pytest

from tests.smoke.conftest import machine

CURRENT = "/opt/landline/current"


def test_systemd_runs_with_nothing_failed(host_name):
    host = machine(host_name)
    state = host.run("systemctl is-system-running --wait").stdout.strip()
    assert state == "running", host.run("systemctl --failed --no-legend").stdout


def test_the_brokers_user_cannot_log_in(host_name):
    user = machine(host_name).user("landline")
    assert user.shell == "/usr/sbin/nologin"
    assert user.group == "landline"
    assert user.uid < 1000


@pytest.mark.parametrize(
    ("path", "mode", "user", "group"),
    [
        ("/etc/landline", 0o750, "root", "landline"),
        ("/etc/sysctl.d/60-landline.conf", 0o644, "root", "root"),
        ("/etc/systemd/journald.conf.d/60-landline.conf", 0o644, "root", "root"),
        ("/etc/needrestart/conf.d/landline.conf", 0o644, "root", "root"),
        ("/etc/systemd/system/landline-broker@.service.d/50-respawn.conf", 0o644, "root", "root"),
        ("/opt/landline", 0o755, "root", "root"),
        ("/opt/landline/releases", 0o755, "root", "root"),
        ("/var/lib/landline", 0o755, "root", "root"),
    ],
)
def test_files_belong_to_whom_they_should(host_name, path, mode, user, group):
    file = machine(host_name).file(path)
    assert (oct(file.mode), file.user, file.group) == (oct(mode), user, group)


def test_the_current_release_is_complete(host_name):
    host = machine(host_name)
    link = host.file(CURRENT)
    assert link.is_symlink
    release = host.file(f"{CURRENT}/.installed").content_string.splitlines()[0]
    assert release == link.linked_to.rsplit("/", 1)[1]


def test_all_hosts_have_the_same_release(cluster):
    releases = {machine(name).file(CURRENT).linked_to for name in cluster.hosts("brokers")}
    assert len(releases) == 1


def test_every_module_of_the_broker_is_compiled(host_name):
    host = machine(host_name)
    find = "import os, broker; print(os.path.dirname(broker.__file__))"
    package = host.check_output(f"{CURRENT}/venv/bin/python -c '{find}'")
    count = "find -L %s -name '*.%s' | wc -l"
    sources, compiled = (int(host.check_output(count, package, suffix)) for suffix in ("py", "pyc"))
    assert sources == compiled > 0


def test_the_command_answers(host_name):
    assert machine(host_name).check_output(f"{CURRENT}/venv/bin/landline --version").startswith("landline ")
