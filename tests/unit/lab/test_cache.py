import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.tools.cache import appearing_directory, appearing_file, content_hash, forget_old


@given(st.lists(st.binary(max_size=4)), st.lists(st.binary(max_size=4)))
def test_only_equal_lists_of_contents_have_the_same_name(first, second):
    assert (content_hash(first) == content_hash(second)) == (first == second)


def test_a_file_appears_when_its_writer_is_done(tmp_path):
    target = tmp_path / "cache" / "binary"
    with appearing_file(target) as work:
        work.write_text("half")
        assert not target.exists()
        work.write_text("whole")
    assert target.read_text() == "whole"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("appearing", [appearing_file, appearing_directory])
def test_an_interrupted_writer_leaves_nothing(tmp_path, appearing):
    def interrupted():
        with appearing(tmp_path / "thing") as work:
            (work / "part" if work.is_dir() else work).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    left = tmp_path / ".partial-thing-dead"
    left.mkdir()
    (left / "thing").write_text("half")
    other = tmp_path / ".partial-another-alive"
    other.mkdir()
    with appearing_file(tmp_path / "thing") as work:
        work.write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial-another-alive", "thing"]


def test_the_versions_used_last_are_kept_and_so_are_neighbours_with_a_longer_name(tmp_path):
    for age, name in enumerate(["tool-a1", "tool-b2.tar", "tool-c3", "tool-d4", "tool-kit-e5", "tool-new"]):
        path = tmp_path / name
        path.touch() if name.endswith(".tar") else path.mkdir()
        os.utime(path, (age, age))
    os.utime(tmp_path / "tool-a1", (99, 99))  # old, but used again
    forget_old(tmp_path / "tool-new")
    assert {path.name for path in tmp_path.iterdir()} == {"tool-a1", "tool-d4", "tool-new", "tool-kit-e5"}


def test_the_newest_version_stays_whatever_its_time_says(tmp_path):
    for age, name in enumerate(["tool-new", "tool-a1", "tool-b2", "tool-c3"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    forget_old(tmp_path / "tool-new")
    assert (tmp_path / "tool-new").exists()
