import re
import shutil

import pytest

from lab.images import table
from lab.tools import families
from lab.tools.families import CLUSTER_TOOLS, ENGINE_TOOLS, FAMILIES, FAMILY_OF, NODE_TOOLS, ToolError

_BUILT = [family for family in FAMILIES if family.binaries]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_requirement_of_a_family_is_pinned_and_summed(family):
    module = (family.source / "go.mod").read_text()
    sums = {tuple(line.split()[:2]) for line in (family.source / "go.sum").read_text().splitlines()}
    required = re.findall(r"^\s*(?:require )?(\S+\.\S+/\S+|\S+\.\S+) (v\d\S*)", module, re.MULTILINE)
    replaced = dict(re.findall(r"^replace (\S+) => \S+ (v\S+)$", module, re.MULTILINE))
    assert required
    missing = [
        (name, version)
        for name, version in required
        if not {(name, replaced.get(name, version)), (name, f"{replaced.get(name, version)}/go.mod")} & sums
    ]
    assert missing == []


@pytest.mark.parametrize("family", _BUILT, ids=lambda family: family.name)
def test_every_package_that_is_built_comes_from_a_pinned_module(family):
    module = (family.source / "go.mod").read_text()
    for package in family.binaries.values():
        if package == ".":
            assert families.PROVIDER_MODULE in module
        else:
            assert re.search(rf"^(?:tool )?\s*{re.escape(package)}$", module, re.MULTILINE), (
                f"no tool line for {package}"
            )


def test_every_directory_of_tools_is_a_family():
    directories = {path.name for path in families.TOOLS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories == {family.name for family in FAMILIES}


def test_a_lab_needs_its_node_and_all_that_is_in_its_images_and_no_engine():
    in_images = {layer.name for image in table.images() for layer in image.layers} & FAMILY_OF.keys()
    assert in_images | set(NODE_TOOLS) == set(CLUSTER_TOOLS)
    assert not set(ENGINE_TOOLS) & set(CLUSTER_TOOLS)


def test_binaries_have_one_family_each():
    assert sum(len(family.binaries) for family in FAMILIES) == len(FAMILY_OF)


@pytest.mark.parametrize(
    ("binary", "arguments"),
    [
        ("etcd", ["-trimpath", "-ldflags", "-s -w"]),
        (
            "pulumi",
            [
                "-trimpath",
                "-tags",
                "osusergo,grpcnotrace",
                "-ldflags",
                "-s -w -X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v3.274.1",
            ],
        ),
        (
            "kubelet",
            [
                "-trimpath",
                "-pgo=off",
                "-ldflags",
                "-s -w -X {0}.gitVersion=v1.36.3 -X {0}.gitMajor=1 -X {0}.gitMinor=36".format(
                    "k8s.io/component-base/version"
                ),
            ],
        ),
        (
            "pulumi-resource-kubernetes",
            [
                "-trimpath",
                "-ldflags",
                "-s -w -X github.com/pulumi/pulumi-kubernetes/provider/v4/pkg/version.Version=4.25.0",
            ],
        ),
    ],
)
def test_programs_are_linked_with_their_pinned_version(binary, arguments):
    assert FAMILY_OF[binary].arguments() == arguments


def test_the_cli_and_the_sdk_that_it_reports_have_one_version():
    family = FAMILY_OF["pulumi"]
    assert family.pinned("github.com/pulumi/pulumi/pkg/v3") == family.pinned("github.com/pulumi/pulumi/sdk/v3")


def test_every_kubernetes_staging_module_is_replaced_by_the_release_that_is_built():
    module = (FAMILY_OF["kubelet"].source / "go.mod").read_text()
    versions = set(re.findall(r"^replace k8s\.io/\S+ => k8s\.io/\S+ (v\S+)$", module, re.MULTILINE))
    assert versions == {FAMILY_OF["kubelet"].pinned("k8s.io/kubernetes").replace("v1.", "v0.")}


def test_a_module_that_is_not_pinned_is_named():
    with pytest.raises(ToolError, match=r"etcd: .*go\.mod does not pin example\.org/nothing"):
        FAMILY_OF["etcd"].pinned("example.org/nothing")


def test_checkouts_share_a_place_and_every_change_moves_it(monkeypatch, tmp_path):
    family = FAMILY_OF["pulumi-resource-kubernetes"]
    original = family.output()
    for checkout in ("one", "two"):
        shutil.copytree(family.source, tmp_path / checkout / family.name)
        monkeypatch.setattr(families, "TOOLS", tmp_path / checkout)
        assert family.output() == original
    places = {original}
    for name in ("go.mod", "go.sum", "main.go"):
        with (family.source / name).open("a") as file:
            file.write("// changed\n")
        places.add(family.output())
    (family.source / "README.md").write_text("says nothing about the binary")
    places.add(family.output())
    assert len(places) == 4
    places.add(families.Family(family.name, family.binaries, ("-race",), family.stamps).output())
    places.add(families.Family(family.name, {"provider": "."}, family.flags, family.stamps).output())
    assert len(places) == 6
