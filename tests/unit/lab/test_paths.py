import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.paths import NODE_PORTS, Instance, InstanceIdError, cache_root

_IDS = st.from_regex(r"[a-z][a-z0-9]{0,7}", fullmatch=True)


@pytest.mark.parametrize("bad", ["", "Dev", "1lab", "a-b", "../etc", "ninechars", "a\n", "ä"])
def test_an_id_that_does_not_fit_into_paths_and_links_is_refused(bad):
    with pytest.raises(InstanceIdError, match="instance "):
        Instance(bad)


def test_the_default_instance_has_the_documented_paths_and_ports():
    dev = Instance()
    assert (dev.id, dev.node, dev.cgroup) == ("dev", "lab-dev", "llm-d-lab-dev")
    assert [str(path) for path in (dev.state, dev.run, dev.kubeconfig)] == [
        "/var/lib/llm-d-lab/dev",
        "/run/llm-d-lab/dev",
        "/var/lib/llm-d-lab/dev/kubeconfig",
    ]
    assert dev.api_port == 26000
    assert dev.forwards == {30080 + index: 26001 + index for index in range(16)}


@given(_IDS)
def test_every_instance_has_seventeen_ports_below_nodeports_and_ephemeral_ports(name):
    instance = Instance(name)
    ports = [instance.api_port, *instance.forwards.values()]
    assert len(set(ports)) == 1 + len(NODE_PORTS) == 17
    assert all(26000 <= port < 30000 for port in ports)


@given(_IDS, _IDS)
def test_blocks_of_two_instances_are_the_same_or_apart(first, second):
    a, b = Instance(first), Instance(second)
    if a.port_base != b.port_base:
        assert not {a.api_port, *a.forwards.values()} & {b.api_port, *b.forwards.values()}


def test_no_other_instance_takes_the_ports_of_the_default_one():
    bases = {Instance(f"t{number}").port_base for number in range(3000)}
    assert len(bases) == 199  # every block, so that the next line means all of them
    assert Instance().port_base not in bases


def test_the_cache_follows_the_users_setting(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "llm-d-lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert str(cache_root()) == "/home/somebody/.cache/llm-d-lab"
