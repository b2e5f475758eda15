"""Finding, naming and sweeping cgroups on the three kinds of machine."""

from pathlib import Path

import pytest

from lab.linux import cgroups
from lab.linux.cgroups import Hierarchy

V1 = """\
30 24 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,xattr,name=systemd
33 30 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
34 30 0:33 / /sys/fs/cgroup/cpuset rw,nosuid shared:16 - cgroup cgroup rw,cpuset,clone_children
35 24 8:1 / /home rw shared:1 - ext4 /dev/sda1 rw
"""
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"


def test_a_hybrid_machine_has_its_v1_trees_and_an_empty_v2_one():
    assert cgroups.parse_mountinfo(V1) == (
        Hierarchy(Path("/sys/fs/cgroup/unified"), "cgroup2"),
        Hierarchy(Path("/sys/fs/cgroup/systemd"), "cgroup", "none,name=systemd"),
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), "cgroup", "cpu,cpuacct"),
        Hierarchy(Path("/sys/fs/cgroup/cpuset"), "cgroup", "cpuset"),
    )


def test_a_v2_machine_has_one_tree():
    assert cgroups.parse_mountinfo(V2) == (Hierarchy(Path("/sys/fs/cgroup"), "cgroup2"),)


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (Hierarchy(Path("/c/cpu,cpuacct"), "cgroup", "cpu,cpuacct"), ("/c/cpu", "/c/cpuacct")),
        (Hierarchy(Path("/c/memory"), "cgroup", "memory"), ()),
        (Hierarchy(Path("/c/systemd"), "cgroup", "none,name=systemd"), ()),
        (Hierarchy(Path("/c"), "cgroup2"), ()),
    ],
)
def test_a_tree_of_several_controllers_is_linked_under_each_name(tree, expected):
    assert cgroups.links(tree) == tuple(Path(path) for path in expected)


@pytest.fixture
def trees(tmp_path, monkeypatch):
    for name in ("memory", "cpu"):
        (tmp_path / name / "lab-t9" / "k8s.io" / "pod").mkdir(parents=True)
        (tmp_path / name / "lab-t99").mkdir()
    found = tuple(Hierarchy(tmp_path / name, "cgroup", name) for name in ("memory", "cpu"))
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
    return tmp_path


def test_sweeping_removes_the_instances_cgroups_everywhere_and_nobody_elses(trees):
    cgroups.sweep("lab-t9")
    assert sorted(str(path.relative_to(trees)) for path in trees.rglob("*")) == [
        "cpu",
        "cpu/lab-t99",
        "memory",
        "memory/lab-t99",
    ]


def test_sweeping_nothing_is_no_error_and_removes_nothing(trees):
    cgroups.sweep("lab-none")
    assert (trees / "cpu" / "lab-t9").exists()


def test_a_cgroup_that_stays_busy_is_named(trees):
    (trees / "memory" / "lab-t9" / "k8s.io" / "process").touch()
    with pytest.raises(OSError, match="memory/lab-t9"):
        cgroups.sweep("lab-t9", timeout_seconds=0)


def test_controllers_are_handed_down_only_where_there_are_any(tmp_path):
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids rdma\n")
    cgroups._delegate(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset +cpu +io +memory +pids"
    (tmp_path / "cgroup.subtree_control").unlink()
    (tmp_path / "cgroup.controllers").write_text("\n")
    cgroups._delegate(tmp_path)
    assert not (tmp_path / "cgroup.subtree_control").exists()
