"""What stays visible under the lab's private directories."""

from pathlib import Path

from lab.linux import isolation


def test_only_what_lies_below_a_cover_is_kept_and_only_the_outermost():
    paths = [Path(p) for p in ("/run/lab/t9", "/var/lib/ci/checkout", "/var/lib/ci", "/var/lib/lab/t9", "/srv/x")]
    assert isolation.kept(paths, Path("/var/lib")) == (Path("/var/lib/ci"), Path("/var/lib/lab/t9"))
    assert isolation.kept(paths, Path("/run")) == (Path("/run/lab/t9"),)


def test_a_name_that_only_begins_alike_is_not_inside():
    assert isolation.kept([Path("/run/lab"), Path("/run/lab2")], Path("/run")) == (Path("/run/lab"), Path("/run/lab2"))


def test_the_cover_itself_is_never_kept():
    assert isolation.kept([Path("/run")], Path("/run")) == ()
