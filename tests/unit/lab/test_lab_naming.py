import pytest

from lab import naming
from lab.errors import UsageError


@pytest.mark.parametrize("name", ["default", "a", "0", "ci-42", "x" * 32])
def test_good_names_are_taken(name):
    assert naming.checked_lab_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a/b", "..", "x" * 33, "a\n"])
def test_names_that_could_escape_a_path_or_a_command_are_refused(name):
    with pytest.raises(UsageError, match="bad lab name"):
        naming.checked_lab_name(name)


@pytest.mark.parametrize("lab", ["a", "default", "eight-ch", "nine-char", "x" * 32])
def test_interface_names_fit_into_fifteen_characters(lab):
    for host in naming.hosts(lab, naming.MAX_HOSTS):
        assert len(host.interface) <= 15


def test_labs_whose_names_begin_alike_share_no_machine_or_interface():
    labs = ["t-cluster-1001", "t-cluster-1002", "t-cluster", "t-c"]
    hosts = [host for lab in labs for host in naming.hosts(lab, 12)]
    assert len({host.machine for host in hosts}) == len(hosts)
    assert len({host.interface for host in hosts}) == len(hosts)
    assert len({naming.namespace(lab) for lab in labs}) == len(labs)


def test_hosts_of_every_lab_have_the_same_addresses_from_eleven_on():
    assert [host.address for host in naming.hosts("one", 3)] == ["10.89.0.11", "10.89.0.12", "10.89.0.13"]
    assert [host.address for host in naming.hosts("two", 3)] == ["10.89.0.11", "10.89.0.12", "10.89.0.13"]


@pytest.mark.parametrize("count", [0, -1, naming.MAX_HOSTS + 1])
def test_a_number_of_hosts_that_has_no_addresses_is_refused(count):
    with pytest.raises(UsageError, match="a lab has 1 to"):
        naming.hosts("default", count)
