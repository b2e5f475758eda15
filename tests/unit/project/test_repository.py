"""What may never be committed: addresses of package hosts, paths of one machine, large or binary files."""

import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
PICTURES = {".png", ".svg"}
LARGEST_BYTES = 400_000  # a lock of hashes is the largest text here

# Written in pieces, so that this file does not find itself.
HOSTS = [
    "pypi" + r"\.org",
    "pythonhosted" + r"\.org",
    "proxy" + r"\.golang",
    "sum" + r"\.golang",
    "registry" + r"\.npmjs",
]
FORBIDDEN = re.compile("|".join([*HOSTS, "/work" + "/", "/root" + "/"]))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_package_host_or_a_path_of_one_machine():
    found = {}
    for path in tracked():
        if path.suffix not in PICTURES and (hits := FORBIDDEN.findall(path.read_text())):
            found[str(path.relative_to(ROOT))] = hits
    assert found == {}


def test_no_file_is_large():
    large = {str(path): path.stat().st_size for path in tracked() if path.stat().st_size > LARGEST_BYTES}
    assert large == {}


def test_every_lock_line_carries_a_hash():
    for lock in ROOT.glob("requirements*.txt"):
        blocks = re.split(r"\n(?=\S)", lock.read_text().strip())
        unhashed = [
            block.splitlines()[0] for block in blocks if not block.startswith("#") and "--hash=sha256:" not in block
        ]
        assert unhashed == []


class UniqueKeys(yaml.SafeLoader):
    """Refuses a mapping that says a key twice; the plain loader takes the last one, the engine refuses the file."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key stands twice among {keys}"
        return super().construct_mapping(node, deep)


def test_no_stack_file_says_a_key_twice():
    for file in ROOT.glob("Pulumi*.yaml"):
        yaml.load(file.read_text(), UniqueKeys)
