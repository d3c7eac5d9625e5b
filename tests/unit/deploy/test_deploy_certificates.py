"""Another CA takes the place of the cluster's own, step by step; certificates that are given are inspected whole."""

import itertools
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from tests.support.certificates import DAY, Authority
from tests.support.deploy_code import load

certificates = load("plugins/modules/broker_certificates.py")
from ansible_collections.landline.cluster.plugins.module_utils.certificate_files import why_untrusted  # noqa: E402 - its place is known from here on

HOSTS = ("h1", "h2")
STEPS = ("trust", "issue", "drop")
WRITES = {"os.rename", "os.rmdir", "os.remove", "os.mkdir", "open"}


class CutOffError(BaseException):
    """The run ends here, like one that is killed."""


class Cut:
    """Ends a run before its n-th change of a file."""

    def __init__(self):
        self._left = -1
        sys.addaudithook(self._see)

    @contextmanager
    def before(self, number):
        self._left = number
        try:
            yield
        finally:
            self._left = -1

    def _see(self, event, arguments):
        if self._left < 0 or event not in WRITES or (event == "open" and not is_write(arguments)):
            return
        self._left -= 1
        if self._left < 0:
            raise CutOffError


def is_write(arguments):
    return isinstance(arguments[2], int) and arguments[2] & 0o3 != 0


CUT = Cut()


def keep(directory, step="", done=False, **changed):
    hosts = [{"name": name, "names": [name], "file": ""} for name in HOSTS]
    params = {"directory": str(directory), "hosts": hosts, "days": 365, "renew_days": 30, "renew": False}
    return certificates.keep({**params, "rollover": step, "hosts_are_done": done, **changed}, may_write=True)


def go_to(directory, step):
    """As playbooks/certificates.yml does: a step comes when the hosts have the one before."""
    found = keep(directory, step)
    if found["rollover"]["pending"]:
        found = keep(directory, step, done=True)
    return keep(directory, step, done=True) if found["rollover"]["step"] == "drop" else found


def issuers(pem):
    return [each.issuer.rfc4514_string() for each in x509.load_pem_x509_certificates(Path(pem).read_bytes())]


def issuer_of(directory, host="h1"):
    return issuers(directory / f"{host}.pem")[0]


def test_each_step_trusts_and_issues_what_the_brokers_can_take_up(tmp_path):
    (old,) = issuers(keep(tmp_path)["trusted"])
    shown = [(tmp_path / "h1.pem").read_bytes()]
    for step, of_old in (("trust", True), ("issue", False), ("drop", False)):
        found = keep(tmp_path, step, done=True)
        assert found["rollover"] == {"step": step, "pending": False}
        assert set(found["issued"]) == set(HOSTS)
        assert (issuer_of(tmp_path) == old) is of_old
        assert (old in issuers(found["trusted"])) is (step != "drop")
        for host in HOSTS:
            assert why_untrusted(tmp_path / f"{host}.pem", Path(found["trusted"])) == ""
        shown.append((tmp_path / "h1.pem").read_bytes())
    assert len(set(shown)) == 4
    ended = keep(tmp_path, "drop", done=True)
    assert ended["rollover"]["step"] == ""
    assert (ended["trusted"], ended["issued"]) == (str(tmp_path / "ca.pem"), {})
    assert not list(tmp_path.glob("*rollover*"))
    assert old not in issuers(tmp_path / "ca.pem")
    assert keep(tmp_path, "drop", done=True)["changed"] is False


def test_a_step_is_taken_once_and_a_deploy_meanwhile_changes_nothing(tmp_path):
    keep(tmp_path)
    for step in ("trust", "issue"):
        go_to(tmp_path, step)
        again = keep(tmp_path, step, done=True)
        assert (again["changed"], again["rollover"]["step"]) == (False, step)
        assert keep(tmp_path)["changed"] is False


def test_a_step_waits_until_the_hosts_have_the_one_before(tmp_path):
    keep(tmp_path)
    keep(tmp_path, "trust")
    for step in ("issue", "drop"):
        found = keep(tmp_path, step)
        assert found["rollover"]["pending"] is True
        assert found["changed"] is False
        keep(tmp_path, step, done=True)


@pytest.mark.parametrize(
    ("steps", "wrong", "words"),
    [
        ([], "issue", "is not being replaced"),
        (["trust"], "drop", "its step is trust"),
        (["trust", "issue"], "trust", "its step is issue"),
    ],
)
def test_steps_have_an_order(tmp_path, steps, wrong, words):
    keep(tmp_path)
    for step in steps:
        go_to(tmp_path, step)
    with pytest.raises(certificates.CertificateError, match=words):
        keep(tmp_path, wrong, done=True)


@pytest.mark.parametrize("step", ["", *STEPS])
def test_a_run_that_is_cut_off_anywhere_leaves_what_the_next_one_mends(tmp_path, step):
    """A deploy comes next, and then the same step again."""
    start = tmp_path / "start"
    start.mkdir()
    for each in ["", *STEPS][: ["", *STEPS].index(step)]:
        go_to(start, each)
    for number in itertools.count():
        directory = tmp_path / str(number)
        shutil.copytree(start, directory)
        try:
            with CUT.before(number):
                go_to(directory, step)
        except CutOffError:
            trusted = keep(directory)["trusted"]
            for host in HOSTS:
                assert why_untrusted(directory / f"{host}.pem", Path(trusted)) == ""
            found = go_to(directory, step)
            assert found["rollover"] == {"step": "" if step == "drop" else step, "pending": False}
            assert keep(directory)["changed"] is False
            assert not list(directory.glob(".rollover*"))
        else:
            break
    assert number > 5


def test_a_ca_of_the_operators_may_be_put_into_the_directory(tmp_path):
    ca = Authority("put there")
    (tmp_path / "ca.key").write_bytes(ca.issued.key_pem())
    ca.write_pem(tmp_path / "ca.pem")
    keep(tmp_path)
    assert why_untrusted(tmp_path / "h1.pem", tmp_path / "ca.pem") == ""
    go_to(tmp_path, "trust")
    assert issuer_of(tmp_path) == ca.certificate.subject.rfc4514_string()


def test_a_new_ca_that_is_lost_is_not_made_again(tmp_path):
    keep(tmp_path)
    keep(tmp_path, "trust")
    for name in ("ca.key", "ca.pem"):
        (tmp_path / "rollover" / name).unlink()
    with pytest.raises(certificates.CertificateError, match="bring them back"):
        keep(tmp_path)


def given(tmp_path, host, issued):
    return {
        "name": host,
        "names": [host],
        "file": str(issued.write_pem(tmp_path / f"{host}.pem")),
        "trusted": str(tmp_path / "trusted.pem"),
    }


def test_a_given_certificate_may_have_a_ca_between(tmp_path):
    above = Authority("above")
    above.write_pem(tmp_path / "trusted.pem")
    host = given(tmp_path, "h1", Authority("below", above).issue(hosts=["h1"]))
    assert keep("", hosts=[host])["hosts"]["h1"]["path"] == host["file"]
    issued = Authority("below", above).issue(hosts=["h1"])
    issued.issuers = ()
    with pytest.raises(certificates.CertificateError, match="unable to get local issuer"):
        keep("", hosts=[given(tmp_path, "h1", issued)])


def test_all_that_is_wrong_with_given_certificates_is_told_with_host_and_file(tmp_path):
    ca = Authority()
    ca.write_pem(tmp_path / "trusted.pem")
    hosts = [
        given(tmp_path, "h1", Authority("another").issue(hosts=["h1"])),
        given(tmp_path, "h2", ca.issue(hosts=["h2"], ends=-DAY / 2)),
        given(tmp_path, "h3", ca.issue(hosts=["h3"])),
    ]
    with pytest.raises(certificates.CertificateError) as error:
        keep("", hosts=hosts)
    first, second = str(error.value).split("; ")
    assert first.startswith(f"h1: {tmp_path}/h1.pem is not trusted by {tmp_path}/trusted.pem")
    assert second.startswith(f"h2: {tmp_path}/h2.pem is valid from")
    (tmp_path / "trusted.pem").unlink()
    with pytest.raises(certificates.CertificateError, match=r"trusted.pem cannot be used: .*No such file"):
        keep("", hosts=hosts[2:])


def test_the_ca_of_given_certificates_is_not_replaced_by_a_step(tmp_path):
    ca = Authority()
    ca.write_pem(tmp_path / "trusted.pem")
    host = given(tmp_path, "h1", ca.issue(hosts=["h1"]))
    with pytest.raises(certificates.CertificateError, match="is for the cluster's own CA"):
        keep("", "trust", hosts=[host])
